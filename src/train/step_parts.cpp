#include "train/step_parts.h"

#include "ops/parts/parts.h"
#include "ops/pointwise/pointwise.h"
#include "tape/record.h"

namespace millrace::train {

using tape::record_of;

StepParts::StepParts(tape::Builder& builder, const StepRows& rows, base::Rank rank)
    : builder_(builder), rank_(rank), parts_(rows.parts()), own_(rank.share(rows.parts())) {
    const tape::Store& store = builder.store();
    const auto clear = [&](const tensor::View& view, double value) {
        builder.append(record_of(&ops::fill::kDef, ops::FillParams{value}, "parts", {view}));
    };
    moved_ = builder.statistics_row();
    if (moved_.present()) clear(moved_, ops::kUnmoved);
    const tensor::View gradients = store.gradient_arena();
    if (own_ == 0) clear(gradients, 0);
    if (own_ > 1) clear(sums_ = builder.buffer(1, 1, gradients.cols, gradients.dtype, tape::Role::gradient, "sums"), 0);
    const std::int32_t words = ops::part_words(moved_.present() ? moved_.cols : 0);
    // Equally many rows on all ranks, that of the first rank, which never has fewer.
    const std::int32_t most = base::Rank{0, rank.world}.share(parts_);
    table_ = builder.buffer(1, most, words, tensor::DType::i32, tape::Role::scratch, "parts");
    clear(table_, 0);
}

void StepParts::end_micro_batch(const ops::MicroEndParams& micro) {
    const tape::Store& store = builder_.store();
    if (sums_.present())
        builder_.append(record_of(&ops::add_part::kDef, ops::AddPartParams{}, "parts", {store.gradient_arena(), sums_}));
    builder_.append(
        record_of(&ops::part_end::kDef, ops::PartEndParams{micro, rank_.rank}, "parts", {store.state(), moved_, table_}));
}

tensor::View StepParts::gather_tables() {
    if (rank_.world == 1) return table_;
    const tensor::View all = builder_.buffer(1, static_cast<std::int32_t>(rank_.world) * table_.rows, table_.cols, table_.dtype,
                                             tape::Role::scratch, "all parts");
    builder_.append(record_of(&ops::gather_parts::kDef, ops::GatherPartsParams{}, "parts", {table_, all}));
    return all;
}

void StepParts::finish(bool by_library, const std::vector<tape::Builder::Moved>& moved) {
    const tape::Store& store = builder_.store();
    if (rank_.world > 1)
        builder_.append(record_of(&ops::reduce::kDef, ops::ReduceParams{by_library}, "parts", {store.gradient_arena()}));
    const tensor::View all = gather_tables();
    ops::FoldParams fold{static_cast<std::uint32_t>(parts_), rank_.world};
    builder_.append(record_of(&ops::fold_sums::kDef, fold, "parts", {all, store.state()}));
    for (const tape::Builder::Moved& statistic : moved) {
        fold.offset = static_cast<std::uint32_t>(statistic.offset);
        fold.momentum = statistic.momentum;
        builder_.append(record_of(&ops::fold_running::kDef, fold, "parts", {all, store.parameter(statistic.id)}));
    }
}

}  // namespace millrace::train
