#include "data/text/text_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/log.h"
#include "base/units.h"
#include "base/utf8.h"
#include "io/checksum.h"
#include "ops/gather/gather.h"
#include "tape/record.h"

namespace millrace::data {
namespace {

constexpr std::size_t kTextCap = std::size_t{8} << 30;
constexpr std::size_t kMostTokens = std::numeric_limits<std::int32_t>::max();
constexpr std::string_view kWhite = " \t\n\v\f\r";
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

std::string statistics_text(const TextStatistics& of) {
    return fmt::format("{} tokens, {:.2f} % unknown, unigram perplexity {:.1f}",
                       base::print_count(static_cast<std::uint64_t>(of.tokens)), 100 * of.unknown_share(), of.unigram_perplexity);
}

}  // namespace

Result<std::string> read_text_file(const Path& path) {
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored))
        return Error{fmt::format("is missing; a text has {}", fmt::join(kTextFiles, ", ")), path.string()};
    MILLRACE_LET(text, io::read_text(path, kTextCap));
    if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
    if (const std::size_t at = base::find_broken_utf8(text); at != std::string::npos)
        return Error{
            fmt::format("is not UTF-8: byte 0x{:02x}", static_cast<unsigned char>(text[at])),
            fmt::format("{}:{}", path.string(), 1 + std::count(text.begin(), text.begin() + static_cast<long>(at), '\n'))};
    if (text.find_first_not_of(kWhite) == std::string::npos) return Error{"holds no word", path.string()};
    if (const auto zeros = std::ranges::count(text, '\0'); zeros > 0)
        MILLRACE_LOG(warn,
                     "{} holds {} zero byte{}, which are part of its words: text as UTF-16, or what is no text, would do that",
                     path.string(), zeros, zeros == 1 ? "" : "s");
    return text;
}

namespace {

/// Lines. What could hold a word too long for SentencePiece is cut at white space, or between two characters where there is none.
std::vector<std::string> lines_of(std::string_view text) {
    std::vector<std::string> lines;
    while (!text.empty()) {
        // No further than a line may be long: one that never ends would be searched anew for each of its pieces.
        const std::string_view near = text.substr(0, Tokenizer::kLongestWord + 1);
        std::size_t end = std::min(near.find('\n'), text.size());
        if (end > Tokenizer::kLongestWord) {
            end = text.find_last_of(kWhite, Tokenizer::kLongestWord);
            if (end == std::string_view::npos || end == 0) end = Tokenizer::kLongestWord;
            while ((static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
        }
        lines.emplace_back(text.substr(0, end));
        text.remove_prefix(end < text.size() && text[end] == '\n' ? end + 1 : end);
    }
    return lines;
}

/// What a part is called in errors.
Path place_of(const Path& path, Part part) {
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(path, ignored)) return path / kTextFiles[index_of(part)];
    return fmt::format("{} ({} part)", path.string(), name_of(part));
}

/// The white space that is nearest to `place`, where a text may be cut; the end where there is none.
std::size_t nearest_cut(std::string_view text, std::size_t place) {
    const std::size_t after = std::min(text.find_first_of(kWhite, place), text.size()), before = text.find_last_of(kWhite, place);
    return before == std::string_view::npos || after - place < place - before ? after : before;
}

Result<TextFiles> cut_text_file(const Path& path, double validation, double test) {
    MILLRACE_LET(text, read_text_file(path));
    const auto size = static_cast<double>(text.size());
    const std::size_t tested = test > 0 ? nearest_cut(text, static_cast<std::size_t>(size * (1 - test))) : text.size(),
                      trained = std::min(tested, nearest_cut(text, static_cast<std::size_t>(size * (1 - test - validation))));
    TextFiles files{path, {text.substr(0, trained), text.substr(trained, tested - trained), text.substr(tested)}};
    for (const Part part : kAllParts)
        if (files.texts[index_of(part)].find_first_not_of(kWhite) == std::string::npos)
            return Error{fmt::format("is cut by shares, and its {} part holds no word; a longer text, or other shares in "
                                     "data.validation and data.test, would be right",
                                     name_of(part)),
                         path.string()};
    return files;
}

Status check_count(Part part, std::size_t tokens, std::int32_t length, const Path& path) {
    const std::size_t least = part == Part::train ? 2 * static_cast<std::size_t>(length) : 2;
    if (tokens < least && part == Part::train)
        return Error{fmt::format("has {} tokens; windows of data.length = {} need {}, or data.length = {} or less would be right",
                                 tokens, length, least, std::max<std::size_t>(1, tokens / 2)),
                     path.string()};
    if (tokens < least)
        return Error{fmt::format("has {} tokens; at least {} are needed to predict one", tokens, least), path.string()};
    if (tokens > kMostTokens) return Error{fmt::format("has {} tokens; at most 2^31 - 1 would be right", tokens), path.string()};
    return base::ok();
}

}  // namespace

Result<TextFiles> read_text_files(const Path& folder, double validation, double test) {
    std::error_code ignored;
    if (std::filesystem::is_regular_file(folder, ignored)) return cut_text_file(folder, validation, test);
    if (!std::filesystem::is_directory(folder, ignored))
        return Error{
            fmt::format("no such folder or file; a folder should hold {} (`millrace data make text --out {}` writes some)",
                        fmt::join(kTextFiles, ", "), folder.string()),
            folder.string()};
    TextFiles files{folder, {}};
    for (std::size_t part = 0; part < kPartCount; ++part)
        MILLRACE_SET(files.texts[part], read_text_file(folder / kTextFiles[part]));
    return files;
}

Result<Tokenizer> word_tokenizer(const TextFiles& files, std::int32_t vocabulary) {
    return Tokenizer::count_words(files.texts.front(), vocabulary);
}

Result<Tokenizer> piece_tokenizer(const TextFiles& files, std::int32_t vocabulary) {
    return Tokenizer::train(lines_of(files.texts.front()), vocabulary);
}

std::uint64_t TextSet::checksum() const {
    io::Checksum64 sum;
    for (const auto& part : parts) sum.update(std::as_bytes(std::span(part)));
    return sum.value();
}

Result<TextSet> number_texts(const TextFiles& files, std::shared_ptr<const Tokenizer> tokenizer, std::int32_t vocabulary,
                             std::int32_t length) {
    if (tokenizer->vocabulary() > vocabulary)
        return Error{fmt::format("the tokenizer has {} tokens; data.vocabulary = {} is too small for it", tokenizer->vocabulary(),
                                 vocabulary)};
    TextSet set{folder_name(files.folder), std::move(tokenizer), vocabulary, {}, {}, {}};
    for (const Part part : kAllParts) {
        if (files.texts[index_of(part)].empty()) continue;
        std::vector<std::int32_t>& tokens = set.parts[index_of(part)];
        for (const std::string& line : lines_of(files.texts[index_of(part)])) {
            const auto more = set.tokenizer->encode(line);
            tokens.insert(tokens.end(), more.begin(), more.end());
        }
        MILLRACE_TRY(check_count(part, tokens.size(), length, place_of(files.folder, part)));
    }
    set.statistics = measure_text(set);
    return set;
}

Result<TextSet> join_texts(const std::vector<TextSet>& texts) {
    TextSet all{"", texts.front().tokenizer, texts.front().vocabulary, {}, {}, {}};
    for (const TextSet& text : texts) {
        all.name += (all.name.empty() ? "" : ", ") + text.name;
        TextDomain domain{text.name, {}, {}, text.statistics};
        for (std::size_t part = 0; part < kPartCount; ++part) {
            std::vector<std::int32_t>& tokens = all.parts[part];
            if (tokens.size() + text.parts[part].size() > kMostTokens)
                return Error{fmt::format("{} of all domains has {} tokens up to {}; at most 2^31 - 1 would be right",
                                         kTextFiles[part], tokens.size() + text.parts[part].size(), text.name)};
            domain.first[part] = static_cast<std::int32_t>(tokens.size());
            domain.tokens[part] = static_cast<std::int32_t>(text.parts[part].size());
            tokens.insert(tokens.end(), text.parts[part].begin(), text.parts[part].end());
        }
        all.domains.push_back(std::move(domain));
    }
    return all;
}

std::vector<TextStatistics> measure_text(const TextSet& set) {
    const std::vector<std::int32_t>& train = set.tokens(Part::train);
    std::vector<double> surprise(static_cast<std::size_t>(set.vocabulary), 1);  // counts first
    for (const std::int32_t token : train) surprise[static_cast<std::size_t>(token)] += 1;
    const double all = std::log(static_cast<double>(train.size()) + set.vocabulary);
    for (double& value : surprise) value = all - std::log(value);
    std::vector<TextStatistics> statistics;
    for (const auto& tokens : set.parts) {
        TextStatistics& part = statistics.emplace_back();
        part.tokens = static_cast<std::int64_t>(tokens.size());
        part.unknown = std::count(tokens.begin(), tokens.end(), set.tokenizer->unknown());
        double sum = 0;
        for (std::size_t i = 1; i < tokens.size(); ++i) sum += surprise[static_cast<std::size_t>(tokens[i])];
        if (tokens.size() > 1 && !train.empty()) part.unigram_perplexity = std::exp(sum / static_cast<double>(tokens.size() - 1));
    }
    return statistics;
}

ResidentText::ResidentText(std::shared_ptr<const TextSet> set, std::int32_t length, TextStages stages)
    : set_(std::move(set)), length_(length), stages_(stages) {
    Field tokens{"tokens", Field::Kind::integer, length_ + 1, set_->vocabulary, set_->tokenizer};
    tokens.statistics = set_->statistics;
    fields_ = {std::move(tokens), {"length", Field::Kind::integer, 1, length_ + 1}};
    for (const TextDomain& domain : set_->domains) domains_.push_back({domain.name, {}});
    for (const Part part : kAllParts) {
        const std::size_t at = index_of(part);
        std::int32_t all = 0, least = std::numeric_limits<std::int32_t>::max();
        for (std::size_t d = 0; d < std::max<std::size_t>(domains_.size(), 1); ++d) {
            ops::TokenRange range{0, static_cast<std::int32_t>(set_->tokens(part).size()), all, 0};
            if (!domains_.empty()) range.first = set_->domains[d].first[at], range.tokens = set_->domains[d].tokens[at];
            range.windows = part == Part::train ? range.tokens / length_ - 1 : (range.tokens - 1 + length_ - 1) / length_;
            range.windows = std::max(range.windows, 0);  // of a part that is not there
            if (part != Part::train && stages_.scored > 0) range.windows = std::min(range.windows, stages_.scored);
            if (!domains_.empty()) domains_[d].samples[at] = range.windows;
            all += range.windows;
            least = std::min(least, range.windows);
            ranges_[at].push_back(range);
        }
        samples_[at] = part == Part::train ? least : all;
    }
    if (stages_.windows > 0) samples_[index_of(Part::train)] = stages_.windows;
}

std::vector<std::string> ResidentText::texts_at(Part part, std::int32_t position) const {
    const std::vector<ops::TokenRange>& ranges = ranges_[index_of(part)];
    ops::GatherWindowsParams params;
    params.training = false;
    const ops::TokenWindow window = ops::token_window(params, 0, 0, static_cast<std::uint32_t>(position), length_, ranges.data(),
                                                      static_cast<std::int32_t>(ranges.size()));
    return {set_->tokenizer->decode(
        std::span(set_->tokens(part)).subspan(static_cast<std::size_t>(window.first), static_cast<std::size_t>(window.count)))};
}

std::vector<std::string> ResidentText::notes() const {
    std::vector<std::string> lines;
    if (domains_.empty())
        for (const Part part : kAllParts)
            lines.push_back(fmt::format("{}: {}", name_of(part), statistics_text(set_->statistics[index_of(part)])));
    for (const TextDomain& domain : set_->domains)
        for (const Part part : kAllParts)
            lines.push_back(
                fmt::format("{} {}: {}", domain.name, name_of(part), statistics_text(domain.statistics[index_of(part)])));
    if (!domains_.empty())
        lines.push_back(fmt::format("{} domains of {} epoch{} each, {} windows an epoch", domains_.size(), stages_.epochs,
                                    stages_.epochs == 1 ? "" : "s",
                                    base::print_count(static_cast<std::uint64_t>(samples(Part::train)))));
    return lines;
}

base::Status ResidentText::declare_tables(tape::Store& store) {
    for (const Part part : kAllParts) {
        const std::vector<std::int32_t>& tokens = set_->tokens(part);
        const std::vector<ops::TokenRange>& ranges = ranges_[index_of(part)];
        streams_[index_of(part)] = add_table(store, fmt::format("{} tokens", name_of(part)), tensor::DType::i32,
                                             static_cast<std::int32_t>(tokens.size()), 1, tokens);
        tables_[index_of(part)] = add_table(store, fmt::format("{} ranges", name_of(part)), tensor::DType::i32,
                                            static_cast<std::int32_t>(ranges.size()), ops::kTokenRangeColumns, ranges);
    }
    return base::ok();
}

std::vector<tensor::View> ResidentText::gather(tape::Builder& builder, Part part, std::int32_t rows,
                                               std::span<const Wanted> fields) {
    ops::GatherWindowsParams params;
    params.samples = static_cast<std::uint32_t>(samples(part));
    params.training = builder.training();
    params.epochs = stages_.epochs;
    const Gathered places = places_of(builder, fields_, rows, fields);
    builder.append(tape::record_of(
        &ops::gather_windows::kDef, params, "data",
        {streams_[index_of(part)], tables_[index_of(part)], builder.store().state(), places.fields[0], places.fields[1]}));
    return places.wanted;
}

}  // namespace millrace::data
