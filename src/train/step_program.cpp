#include "train/step_program.h"

#include <optional>

#include "ops/parts/parts.h"
#include "ops/pointwise/pointwise.h"
#include "ops/step/step.h"
#include "optim/update.h"
#include "tape/builder.h"
#include "tape/record.h"

namespace millrace::train {

using tape::record_of;

EpochSteps divide_epoch(std::int32_t samples, std::int32_t batch, std::int32_t accumulation) {
    MILLRACE_ASSERT(samples >= 0 && batch >= 1 && accumulation >= 1);
    EpochSteps epoch;
    epoch.step = {batch, accumulation, 0};
    const std::int64_t whole = std::int64_t{batch} * accumulation;
    epoch.regular = static_cast<std::int32_t>(samples / whole);
    const auto left = static_cast<std::int32_t>(samples - epoch.regular * whole);
    epoch.last = {batch, left / batch, left % batch};
    return epoch;
}

namespace {

/// Gradients, sums and running statistics of each micro-batch apart, and the records that add them up in their order (ops/parts):
/// of a step in several micro-batches, on this rank or on many.
class StepParts {
public:
    /// Begins a step of `rows` on one of `ranks`: appends what clears the sums. `builder` outlives it.
    StepParts(tape::Builder& builder, const StepRows& rows, const StepRanks& ranks)
        : builder_(builder), ranks_(ranks), parts_(rows.parts()), own_(ranks.share(rows.parts())) {
        const auto clear = [&](const tensor::View& view, double value) {
            append(&ops::fill::kDef, ops::FillParams{value}, {view});
        };
        moved_ = builder.statistics_row();
        if (moved_.present()) clear(moved_, ops::kUnmoved);
        const tensor::View gradients = builder.store().gradient_arena();
        if (own_ == 0) clear(gradients, 0);
        if (own_ > 1) clear(sums_ = builder.buffer(1, 1, gradients.cols, gradients.dtype, tape::Role::gradient, "sums"), 0);
        const std::int32_t words = ops::part_words(moved_.present() ? moved_.cols : 0);
        // Equally many rows on all ranks, that of the first rank, which never has fewer.
        const std::int32_t most = StepRanks{0, ranks.world}.share(parts_);
        table_ = builder.buffer(1, most, words, tensor::DType::i32, tape::Role::scratch, "parts");
        clear(table_, 0);
    }

    /// Behind each micro-batch; `micro` as of ops::micro_end.
    void end_micro_batch(const ops::MicroEndParams& micro) {
        const tape::Store& store = builder_.store();
        if (sums_.present()) append(&ops::add_part::kDef, ops::AddPartParams{}, {store.gradient_arena(), sums_});
        append(&ops::part_end::kDef, ops::PartEndParams{micro, ranks_.rank}, {store.state(), moved_, table_});
    }

    /// Behind the last one: the step's gradients, sums and the statistics that were moved, of all ranks.
    void finish(const std::vector<tape::Builder::Moved>& moved) {
        const tape::Store& store = builder_.store();
        tensor::View all = table_;
        if (ranks_.world > 1) {
            all = builder_.buffer(1, static_cast<std::int32_t>(ranks_.world) * table_.rows, table_.cols, table_.dtype,
                                  tape::Role::scratch, "all parts");
            append(&ops::exchange::kDef, ops::ExchangeParams{ranks_.by_library}, {store.gradient_arena(), table_, all});
        }
        ops::FoldParams fold{static_cast<std::uint32_t>(parts_), ranks_.world};
        append(&ops::fold_sums::kDef, fold, {all, store.state()});
        for (const tape::Builder::Moved& statistic : moved) {
            fold.offset = static_cast<std::uint32_t>(statistic.offset);
            fold.momentum = statistic.momentum;
            append(&ops::fold_running::kDef, fold, {all, store.parameter(statistic.id)});
        }
    }

private:
    template <class Params>
    void append(const ops::OpDef* def, const Params& params, std::initializer_list<tape::Slot> operands) {
        builder_.append(record_of(def, params, "parts", operands));
    }

    tape::Builder& builder_;
    const StepRanks ranks_;
    const std::int32_t parts_;  ///< of the step
    const std::int32_t own_;    ///< of this rank
    tensor::View sums_;         ///< of gradients; absent with one micro-batch at most
    tensor::View moved_;        ///< by the micro-batch under way; absent without running statistics
    tensor::View table_;
};

/// What micro-batches on other ranks move: those of a model that is built and thrown away.
std::vector<tape::Builder::Moved> moved_elsewhere(tape::Store& store, models::Model& model, data::BatchSource& source,
                                                  const StepRows& rows) {
    tape::Builder builder(store, {});
    builder.statistics_row();
    (void)model.build(builder, source, data::Part::train, rows.full > 0 ? rows.rows : rows.tail);
    return builder.moved_statistics();
}

}  // namespace

tape::Builder build_training_step(tape::Store& store, models::Model& model, data::BatchSource& source,
                                  const optim::OptimizerSettings& settings, const StepRows& rows, models::Outputs* outputs,
                                  int memory_level, const StepRanks& ranks) {
    MILLRACE_ASSERT(rows.total() > 0, "a step without rows");
    const StepRows own = rows.of(ranks);
    const auto size = static_cast<std::uint32_t>(rows.rows), first = own.parts() > 0 ? ranks.rank * size : 0;
    ops::MicroEndParams end{size, static_cast<std::uint32_t>(source.samples(data::Part::train)), true, ranks.world};
    end.parts = static_cast<std::uint32_t>(rows.parts());
    const std::uint32_t last = own.parts() == 0 ? 0 : ranks.rank + static_cast<std::uint32_t>(own.parts() - 1) * ranks.world;
    end.last = static_cast<std::uint32_t>(rows.total()) - last * size;

    tape::BuildOptions options;
    options.memory_level = memory_level;
    options.defer_weight_gradients = store.backend().kind() == ops::DeviceKind::cuda;
    tape::Builder builder(store, options);
    // While the position is still that of the step.
    if (rows.parts() > 1) model.append_loss_totals(builder, source, static_cast<std::int32_t>(rows.total()));
    optim::append_step_begin(builder, ranks.rank, first);
    std::optional<StepParts> parts;
    if (rows.parts() > 1 || ranks.world > 1) parts.emplace(builder, rows, ranks);
    builder.close_section();

    const auto end_micro_batch = [&] {
        if (parts)
            parts->end_micro_batch(end);
        else
            builder.append(record_of(&ops::micro_end::kDef, end, "step", {store.state()}));
    };
    auto append_micro_batches = [&](std::int32_t micro_rows, std::int32_t repeat) {
        if (micro_rows == 0 || repeat == 0) return;
        options.share = static_cast<double>(micro_rows) / static_cast<double>(rows.total());
        builder.set_options(options);
        builder.restart_op_numbers();
        models::Outputs built = model.build(builder, source, data::Part::train, micro_rows);
        if (outputs != nullptr) *outputs = std::move(built);
        end_micro_batch();
        builder.close_section(repeat);
    };
    append_micro_batches(own.rows, own.full);
    append_micro_batches(own.tail, 1);

    if (own.parts() == 0) builder.append(record_of(&ops::micro_end::kDef, end, "step", {store.state()}));
    if (parts) parts->finish(own.parts() > 0 ? builder.moved_statistics() : moved_elsewhere(store, model, source, rows));
    model.append_before_update(builder);
    optim::append_update(builder, settings);
    builder.close_section();
    return builder;
}

tape::Builder build_evaluation(tape::Store& store, models::Model& model, data::BatchSource& source, data::Part part,
                               std::int32_t rows, models::Outputs* outputs, bool keep_predictions) {
    tape::BuildOptions options;
    options.training = false;
    tape::Builder builder(store, options);
    builder.restart_op_numbers();
    models::Outputs built = model.build(builder, source, part, rows);
    for (const tensor::View& view : {built.prediction.view, built.labels, built.predicted})
        if (keep_predictions && view.present()) builder.keep(view);
    if (outputs != nullptr) *outputs = std::move(built);
    const ops::MicroEndParams end{static_cast<std::uint32_t>(rows), static_cast<std::uint32_t>(source.samples(part)), false};
    builder.append(record_of(&ops::micro_end::kDef, end, "step", {store.state()}));
    builder.close_section();
    return builder;
}

}  // namespace millrace::train
