#include "data/text/resident_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/units.h"
#include "ops/gather/gather.h"

namespace millrace::data {

namespace {

std::string statistics_text(const TextStatistics& of) {
    return fmt::format("{} tokens, {:.2f} % unknown, unigram perplexity {:.1f}",
                       base::print_count(static_cast<std::uint64_t>(of.tokens)), 100 * of.unknown_share(), of.unigram_perplexity);
}

}  // namespace

ResidentText::ResidentText(std::shared_ptr<const TextSet> set, std::int32_t length, base::Rank rank, TextStages stages)
    : set_(std::move(set)), length_(length), rank_(rank), stages_(stages) {
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
                                    base::print_count(static_cast<std::uint64_t>(whole(Part::train)))));
    return lines;
}

base::Status ResidentText::declare(tape::Store& store) {
    for (const Part part : kAllParts) {
        streams_[index_of(part)] = store.add_data(fmt::format("{} tokens", name_of(part)), tensor::DType::i32,
                                                  static_cast<std::int32_t>(set_->tokens(part).size()), 1);
        tables_[index_of(part)] =
            store.add_data(fmt::format("{} ranges", name_of(part)), tensor::DType::i32,
                           static_cast<std::int32_t>(ranges_[index_of(part)].size()), ops::kTokenRangeColumns);
    }
    return base::ok();
}

base::Status ResidentText::upload(tape::Store& store) {
    for (const Part part : kAllParts) {
        const std::vector<std::int32_t>& tokens = set_->tokens(part);
        store.write(streams_[index_of(part)], tokens.data(), tokens.size() * sizeof(std::int32_t));
        const std::vector<ops::TokenRange>& ranges = ranges_[index_of(part)];
        store.write(tables_[index_of(part)], ranges.data(), ranges.size() * sizeof(ops::TokenRange));
    }
    return store.backend().check();
}

std::vector<tensor::View> ResidentText::gather(tape::Builder& builder, Part part, std::int32_t rows,
                                               std::span<const Wanted> fields) {
    namespace slot = ops::gather_windows;
    ops::GatherWindowsParams params;
    params.samples = static_cast<std::uint32_t>(whole(part));
    params.rank = rank_of(part);
    params.training = builder.training();
    params.epochs = stages_.epochs;

    // One record fills both fields, whichever is wanted.
    tensor::View views[2];
    const auto index_of_field = [&](std::string_view name) {
        const Field* field = find_field(fields_, name);
        MILLRACE_ASSERT(field != nullptr, fmt::format("the source has no field {}", name));
        return static_cast<std::size_t>(field - fields_.data());
    };
    for (const Wanted& wanted : fields) views[index_of_field(wanted.field)] = wanted.into;
    for (std::size_t i = 0; i < fields_.size(); ++i)
        if (!views[i].present())
            views[i] = builder.buffer(1, rows, fields_[i].width, tensor::DType::i32, tape::Role::activation, fields_[i].name);
    ops::Record record{&ops::gather_windows::kDef, params, {}, 0, "data"};
    record.slots[slot::stream] = streams_[index_of(part)];
    record.slots[slot::ranges] = tables_[index_of(part)];
    record.slots[slot::state] = builder.store().state();
    record.slots[slot::out] = views[0];
    record.slots[slot::lengths] = views[1];
    builder.append(std::move(record));
    std::vector<tensor::View> gathered;
    for (const Wanted& wanted : fields) gathered.push_back(views[index_of_field(wanted.field)]);
    return gathered;
}

}  // namespace millrace::data
