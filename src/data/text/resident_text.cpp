#include "data/text/resident_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"
#include "ops/gather/gather.h"

namespace millrace::data {

ResidentText::ResidentText(std::shared_ptr<const TextSet> set, std::int32_t length, base::Rank rank)
    : set_(std::move(set)), length_(length), rank_(rank) {
    Field tokens{"tokens", Field::Kind::integer, length_ + 1, set_->vocabulary, set_->tokenizer};
    tokens.statistics = set_->statistics;
    fields_ = {std::move(tokens), {"length", Field::Kind::integer, 1, length_ + 1}};
}

std::int32_t ResidentText::whole(Part part) const {
    const auto tokens = static_cast<std::int32_t>(set_->tokens(part).size());
    return part == Part::train ? tokens / length_ - 1 : (tokens - 1 + length_ - 1) / length_;
}

std::vector<std::string> ResidentText::texts_at(Part part, std::int32_t position) const {
    const std::span all(set_->tokens(part));
    const auto first = static_cast<std::size_t>(position) * static_cast<std::size_t>(length_);
    return {set_->tokenizer->decode(all.subspan(first, std::min(all.size() - first, static_cast<std::size_t>(length_) + 1)))};
}

std::vector<std::string> ResidentText::notes() const {
    std::vector<std::string> lines;
    for (const Part part : kAllParts) {
        const TextStatistics& of = set_->statistics[index_of(part)];
        lines.push_back(fmt::format("{}: {} tokens, {:.2f} % unknown, unigram perplexity {:.1f}", name_of(part),
                                    base::print_count(static_cast<std::uint64_t>(of.tokens)), 100 * of.unknown_share(),
                                    of.unigram_perplexity));
    }
    return lines;
}

base::Status ResidentText::declare(tape::Store& store) {
    for (const Part part : kAllParts)
        streams_[index_of(part)] = store.add_data(fmt::format("{} tokens", name_of(part)), tensor::DType::i32,
                                                  static_cast<std::int32_t>(set_->tokens(part).size()), 1);
    return base::ok();
}

base::Status ResidentText::upload(tape::Store& store) {
    for (const Part part : kAllParts) {
        const std::vector<std::int32_t>& tokens = set_->tokens(part);
        store.write(streams_[index_of(part)], tokens.data(), tokens.size() * sizeof(std::int32_t));
    }
    return store.backend().check();
}

std::vector<tensor::View> ResidentText::gather(tape::Builder& builder, Part part, std::int32_t rows,
                                               std::span<const Wanted> fields) {
    namespace slot = ops::gather_windows;
    ops::GatherWindowsParams params;
    params.samples = static_cast<std::uint32_t>(whole(part));
    params.rank = rank_of(part);
    params.training = params.shuffle = builder.training();

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
    record.slots[slot::state] = builder.store().state();
    record.slots[slot::out] = views[0];
    record.slots[slot::lengths] = views[1];
    builder.append(std::move(record));
    std::vector<tensor::View> gathered;
    for (const Wanted& wanted : fields) gathered.push_back(views[index_of_field(wanted.field)]);
    return gathered;
}

}  // namespace millrace::data
