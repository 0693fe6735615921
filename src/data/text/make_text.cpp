#include "data/makers.h"

#include <fmt/format.h>

#include <algorithm>

#include "data/pairs/sentence_grammar.h"
#include "data/text/text_set.h"

namespace millrace::data {
namespace {

/// The pair as a line whose words and marks stand apart.
std::string line_of(const TextPair& pair) {
    std::string line;
    for (const char c : pair.input + " " + pair.target + "\n") {
        if (c == '.' || c == ',') line += ' ';
        line += c;
    }
    return line;
}

}  // namespace

Result<MakeOutcome> make_text(const Path& folder, const TextOptions& options) {
    if (options.words == 0 || options.words > kMostMadeWords)
        return Error{fmt::format("a text of {} words; 1 to {} would be right", options.words, kMostMadeWords)};
    const std::uint32_t held_out = std::max(1u, options.words / 10);
    const std::uint32_t wanted[] = {options.words, held_out, held_out};
    MadeFiles files;
    std::uint32_t next = 0;
    for (std::size_t part = 0; part < kPartCount; ++part) {
        std::string text;
        for (std::uint32_t words = 0; words < wanted[part]; ++next) {
            const std::string line = line_of(sentence_pair(options.seed, next));
            words += static_cast<std::uint32_t>(std::ranges::count(line, ' ')) + 1;
            text += line;
        }
        files.emplace_back(kTextFiles[part], std::move(text));
    }
    return write_made_files(folder, files);
}

}  // namespace millrace::data
