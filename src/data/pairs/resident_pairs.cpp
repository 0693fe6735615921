#include "data/pairs/resident_pairs.h"

#include <fmt/format.h>

#include "ops/gather/gather.h"
#include "tape/record.h"

namespace millrace::data {

PairSource::PairSource(std::shared_ptr<const PairSet> set, PairTokens tokens, const std::shared_ptr<const Tokenizer>& tokenizer)
    : set_(std::move(set)), tokens_(std::move(tokens)) {
    order_[index_of(Part::train)].assign(set_->split.training.begin(), set_->split.training.end());
    order_[index_of(Part::validation)].assign(set_->split.validation.begin(), set_->split.validation.end());
    fields_ = {{"vector", Field::Kind::real, dimensions()}, {"goal", Field::Kind::real, dimensions()}};
    constexpr const char* kSides[] = {"input", "target"};
    for (std::size_t side = 0; side < tokens_.size() && tokens_[side].tokens > 0; ++side) {
        fields_.push_back({fmt::format("{}_tokens", kSides[side]), Field::Kind::integer, tokens_[side].tokens,
                           tokenizer ? tokenizer->vocabulary() : 0, tokenizer});
        fields_.push_back({fmt::format("{}_length", kSides[side]), Field::Kind::integer, 1, tokens_[side].tokens + 1});
    }
}

std::uint32_t PairSource::pair_at(Part part, std::int32_t position) const {
    MILLRACE_ASSERT(position >= 0 && position < samples(part), "no such position in this part");
    return static_cast<std::uint32_t>(order_[index_of(part)][static_cast<std::size_t>(position)]);
}

std::vector<std::string> PairSource::texts_at(Part part, std::int32_t position) const {
    const TextPair& texts = set_->texts[pair_at(part, position)];
    return {texts.input, texts.target};
}

base::Status PairSource::declare_tables(tape::Store& store) {
    if (set_->count == 0) return base::Error{"the set has no pairs"};
    if (samples(Part::train) == 0)
        return base::Error{"all pairs are held out for validation; a smaller data.validation would be right"};
    const auto count = static_cast<std::int32_t>(set_->count);
    tables_.clear();
    for (const auto* vectors : {&set_->inputs, &set_->targets}) {
        const tensor::View table =
            store.add_data(fields_[tables_.size()].name, tape::stat_of(store.options().precision), count, dimensions());
        on_upload([table, vectors](tape::Store& to) { to.write_stat(table, *vectors); });
        tables_.push_back(table);
    }
    for (std::size_t i = 2; i < fields_.size(); ++i) {
        const TokenTable& tokens = tokens_[(i - 2) / 2];
        tables_.push_back(add_table(store, fields_[i].name, tensor::DType::i32, count, fields_[i].width,
                                    i % 2 == 0 ? tokens.ids : tokens.lengths));
    }
    for (const Part part : {Part::train, Part::validation}) subset_[index_of(part)] = add_order(store, part);
    return base::ok();
}

std::vector<tensor::View> PairSource::gather(tape::Builder& builder, Part part, std::int32_t rows,
                                             std::span<const Wanted> fields) {
    MILLRACE_ASSERT(samples(part) > 0, fmt::format("the {} part has no pairs to gather", name_of(part)));
    ops::GatherRowsParams params;
    params.samples = static_cast<std::uint32_t>(samples(part));
    params.training = params.shuffle = builder.training();
    std::vector<tensor::View> views;
    for (const Wanted& wanted : fields) {
        const std::size_t field = field_index(fields_, wanted.field);
        views.push_back(places_of(builder, {fields_[field]}, rows, std::span(&wanted, 1)).wanted.front());
        builder.append(tape::record_of(&ops::gather_rows::kDef, params, "data",
                                       {tables_[field], subset_[index_of(part)], builder.store().state(), views.back()}));
    }
    return views;
}

}  // namespace millrace::data
