#include "data/pairs/resident_pairs.h"

#include <fmt/format.h>

#include "ops/gather/gather.h"

namespace millrace::data {
namespace {

void write_vectors(tape::Store& store, const tensor::View& table, const std::vector<float>& values) {
    if (table.dtype == tensor::DType::f64) {
        const std::vector<double> wide(values.begin(), values.end());
        store.write(table, wide.data(), wide.size() * sizeof(double));
    } else {
        store.write(table, values.data(), values.size() * sizeof(float));
    }
}

}  // namespace

PairSource::PairSource(std::shared_ptr<const PairSet> set, PairTokens tokens, const std::shared_ptr<const Tokenizer>& tokenizer,
                       base::Rank rank)
    : set_(std::move(set)), tokens_(std::move(tokens)), rank_(rank) {
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

base::Status PairSource::declare(tape::Store& store) {
    if (set_->count == 0) return base::Error{"the set has no pairs"};
    if (samples(Part::train) == 0)
        return base::Error{"all pairs are held out for validation; a smaller data.validation would be right"};
    const auto count = static_cast<std::int32_t>(set_->count);
    const tensor::DType type = tape::stat_of(store.options().precision);
    for (const Field& field : fields_)
        tables_.push_back(
            store.add_data(field.name, field.kind == Field::Kind::real ? type : tensor::DType::i32, count, field.width));
    for (Part part : {Part::train, Part::validation})
        subset_[index_of(part)] = store.add_data(fmt::format("{} order", name_of(part)), tensor::DType::i32, whole(part), 1);
    return base::ok();
}

base::Status PairSource::upload(tape::Store& store) {
    write_vectors(store, tables_[0], set_->inputs);
    write_vectors(store, tables_[1], set_->targets);
    for (std::size_t i = 2; i < tables_.size(); ++i) {
        const TokenTable& table = tokens_[(i - 2) / 2];
        const std::vector<std::int32_t>& values = i % 2 == 0 ? table.ids : table.lengths;
        store.write(tables_[i], values.data(), values.size() * sizeof(std::int32_t));
    }
    for (std::size_t part = 0; part < kParts; ++part)
        if (!order_[part].empty()) store.write(subset_[part], order_[part].data(), order_[part].size() * sizeof(std::int32_t));
    return store.backend().check();
}

std::vector<tensor::View> PairSource::gather(tape::Builder& builder, Part part, std::int32_t rows,
                                             std::span<const Wanted> fields) {
    namespace slot = ops::gather_rows;
    MILLRACE_ASSERT(samples(part) > 0, fmt::format("the {} part has no pairs to gather", name_of(part)));
    ops::GatherRowsParams params;
    params.samples = static_cast<std::uint32_t>(whole(part));
    params.rank = rank_of(part);
    params.training = params.shuffle = builder.training();
    std::vector<tensor::View> views;
    for (const Wanted& wanted : fields) {
        const Field* field = find_field(fields_, wanted.field);
        MILLRACE_ASSERT(field != nullptr, fmt::format("the source has no field {}", wanted.field));
        ops::Record record{&ops::gather_rows::kDef, params, {}, 0, "data"};
        record.slots[slot::table] = tables_[static_cast<std::size_t>(field - fields_.data())];
        record.slots[slot::subset] = subset_[index_of(part)];
        record.slots[slot::state] = builder.store().state();
        const tensor::DType type = field->kind == Field::Kind::real ? builder.real() : tensor::DType::i32;
        views.push_back(wanted.into.present() ? wanted.into
                                              : builder.buffer(1, rows, field->width, type, tape::Role::activation, field->name));
        record.slots[slot::out] = views.back();
        builder.append(std::move(record));
    }
    return views;
}

}  // namespace millrace::data
