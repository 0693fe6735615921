#include "data/text/resident_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/units.h"
#include "ops/gather/gather.h"
#include "tape/record.h"

namespace millrace::data {

namespace {

std::string statistics_text(const TextStatistics& of) {
    return fmt::format("{} tokens, {:.2f} % unknown, unigram perplexity {:.1f}",
                       base::print_count(static_cast<std::uint64_t>(of.tokens)), 100 * of.unknown_share(), of.unigram_perplexity);
}

}  // namespace

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
