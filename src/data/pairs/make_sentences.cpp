#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/json.h"
#include "data/makers.h"
#include "data/pairs/pairs.h"
#include "data/pairs/teacher.h"
#include "data/text/text_set.h"
#include "io/safetensors.h"

namespace millrace::data {
namespace {

/// A file that is made in memory.
class Poured final : public io::ByteSink {
public:
    Status write(io::Bytes bytes) override {
        text_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        return base::ok();
    }
    [[nodiscard]] const std::string& text() const { return text_; }

private:
    std::string text_;
};

constexpr std::uint64_t kMostBytes = std::uint64_t{4} << 30;  // of both tensors: they are made in memory

Status append_vector(std::vector<float>& all, const std::string& text, std::uint32_t dimensions) {
    MILLRACE_LET(vector, teach(text, dimensions));
    all.insert(all.end(), vector.begin(), vector.end());
    return base::ok();
}

Result<MadeFiles> make_files(const PairsOptions& options) {
    std::string texts;
    std::vector<float> inputs, targets;
    for (std::uint32_t index = 0; index < options.count; ++index) {
        const TextPair pair = sentence_pair(options.seed, index);
        texts += base::json_text(nlohmann::ordered_json{{"input", pair.input}, {"target", pair.target}}) + "\n";
        MILLRACE_TRY(append_vector(inputs, pair.input, options.dimensions));
        MILLRACE_TRY(append_vector(targets, pair.target, options.dimensions));
    }
    const std::vector<std::int64_t> shape{options.count, options.dimensions};
    const io::TensorView tensors[] = {io::float_tensor(kInputVectors, shape, inputs),
                                      io::float_tensor(kTargetVectors, shape, targets)};
    Poured vectors;
    MILLRACE_TRY(io::write_safetensors(vectors, tensors, {}, kPairVectors));
    const nlohmann::ordered_json made{
        {"generator", "pairs-1"}, {"seed", options.seed}, {"count", options.count}, {"dimensions", options.dimensions}};
    const std::string description =
        base::json_text(
            nlohmann::ordered_json{
                {"name", "pairs"}, {"teacher", kHashedTeacher}, {"dimensions", options.dimensions}, {"made", made}},
            2) +
        "\n";
    return MadeFiles{{kPairVectors, vectors.text()}, {kPairTexts, texts}, {kDescription, description}};
}

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

Result<MakeOutcome> make_pairs(const Path& folder, const PairsOptions& options) {
    if (options.count == 0 || options.count > sentence_pair_limit())
        return Error{fmt::format("{} pairs; 1 to {} would be right", options.count, sentence_pair_limit())};
    if (const std::uint64_t bytes = std::uint64_t{options.count} * options.dimensions * 2 * sizeof(float); bytes > kMostBytes)
        return Error{fmt::format("{} pairs of {} dimensions are {:.1f} GiB; fewer of either, at most {} GiB, would be right",
                                 options.count, options.dimensions, static_cast<double>(bytes) / (1 << 30), kMostBytes >> 30)};
    MILLRACE_LET(files, make_files(options));
    return write_made_files(folder, files);
}

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
