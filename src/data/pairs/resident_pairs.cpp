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

tensor::View PairSource::gather(tape::Builder& builder, Part part, const tensor::View& x) {
    gather_inputs(builder, part, x);
    const tensor::View goals = builder.buffer(1, x.rows, dimensions(), builder.stat(), tape::Role::activation, "goals");
    gather_targets(builder, part, goals);
    return goals;
}

PairSource::PairSource(std::shared_ptr<const PairSet> set, PairTokens tokens) : set_(std::move(set)), tokens_(std::move(tokens)) {
    order_[index_of(Part::train)].assign(set_->split.training.begin(), set_->split.training.end());
    order_[index_of(Part::validation)].assign(set_->split.validation.begin(), set_->split.validation.end());
}

std::int32_t PairSource::samples(Part part) const {
    return part == Part::test ? 0 : static_cast<std::int32_t>(order_[index_of(part)].size());
}

std::uint32_t PairSource::pair_at(Part part, std::int32_t position) const {
    MILLRACE_ASSERT(position >= 0 && position < samples(part), "no such position in this part");
    return static_cast<std::uint32_t>(order_[index_of(part)][static_cast<std::size_t>(position)]);
}

std::pair<std::string, std::string> PairSource::texts_at(Part part, std::int32_t position) const {
    const TextPair& texts = set_->texts[pair_at(part, position)];
    return {texts.input, texts.target};
}

base::Status PairSource::declare(tape::Store& store) {
    if (set_->count == 0) return base::Error{"the set has no pairs"};
    if (samples(Part::train) == 0)
        return base::Error{"all pairs are held out for validation; a smaller data.validation would be right"};
    const auto count = static_cast<std::int32_t>(set_->count);
    const tensor::DType type = tape::stat_of(store.options().precision);
    inputs_ = store.add_data("input vectors", type, count, dimensions());
    targets_ = store.add_data("target vectors", type, count, dimensions());
    for (std::size_t side = 0; side < tokens_.size(); ++side) {
        if (tokens_[side].tokens == 0) continue;
        ids_[side] = store.add_data(fmt::format("sentences {}", side), tensor::DType::i32, count, tokens_[side].tokens);
        lengths_[side] = store.add_data(fmt::format("lengths {}", side), tensor::DType::i32, count, 1);
    }
    for (Part part : {Part::train, Part::validation})
        subset_[index_of(part)] = store.add_data(fmt::format("{} order", name_of(part)), tensor::DType::i32, samples(part), 1);
    return base::ok();
}

base::Status PairSource::upload(tape::Store& store) {
    write_vectors(store, inputs_, set_->inputs);
    write_vectors(store, targets_, set_->targets);
    for (std::size_t side = 0; side < tokens_.size(); ++side) {
        const TokenTable& table = tokens_[side];
        if (table.tokens == 0) continue;
        store.write(ids_[side], table.ids.data(), table.ids.size() * sizeof(std::int32_t));
        store.write(lengths_[side], table.lengths.data(), table.lengths.size() * sizeof(std::int32_t));
    }
    for (std::size_t part = 0; part < kParts; ++part)
        if (!order_[part].empty()) store.write(subset_[part], order_[part].data(), order_[part].size() * sizeof(std::int32_t));
    return store.backend().check();
}

void PairSource::gather_from(tape::Builder& builder, Part part, const tensor::View& table, const tensor::View& out) const {
    namespace slot = ops::gather_rows;
    MILLRACE_ASSERT(samples(part) > 0, fmt::format("the {} part has no pairs to gather", name_of(part)));
    ops::GatherRowsParams params;
    params.samples = static_cast<std::uint32_t>(samples(part));
    params.training = params.shuffle = builder.training();
    ops::Record record{&ops::gather_rows::def, params, {}, 0, "data"};
    record.slots[slot::table] = table;
    record.slots[slot::subset] = subset_[index_of(part)];
    record.slots[slot::state] = builder.store().state();
    record.slots[slot::out] = out;
    builder.append(std::move(record));
}

void PairSource::gather_sentences(tape::Builder& builder, Part part, Side side, const tensor::View& ids,
                                  const tensor::View& lengths) {
    MILLRACE_ASSERT(tokens(side) > 0, "the source was made without sentences");
    gather_from(builder, part, ids_[static_cast<std::size_t>(side)], ids);
    gather_from(builder, part, lengths_[static_cast<std::size_t>(side)], lengths);
}

void PairSource::gather_inputs(tape::Builder& builder, Part part, const tensor::View& out) const {
    gather_from(builder, part, inputs_, out);
}

void PairSource::gather_targets(tape::Builder& builder, Part part, const tensor::View& out) const {
    gather_from(builder, part, targets_, out);
}

}  // namespace millrace::data
