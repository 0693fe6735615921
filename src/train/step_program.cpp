#include "train/step_program.h"

#include <optional>

#include "ops/step/step.h"
#include "optim/update.h"
#include "tape/record.h"
#include "train/step_parts.h"

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
    const base::Rank rank = ranks.rank;
    const StepRows own = rows.of(rank);
    const auto size = static_cast<std::uint32_t>(rows.rows), first = own.parts() > 0 ? rank.rank * size : 0;
    ops::MicroEndParams end{size, static_cast<std::uint32_t>(source.samples(data::Part::train)), true, rank.world};
    end.parts = static_cast<std::uint32_t>(rows.parts());
    const std::uint32_t last = own.parts() == 0 ? 0 : rank.rank + static_cast<std::uint32_t>(own.parts() - 1) * rank.world;
    end.last = static_cast<std::uint32_t>(rows.total()) - last * size;

    tape::BuildOptions options;
    options.memory_level = memory_level;
    options.defer_weight_gradients = store.backend().kind() == ops::DeviceKind::cuda;
    tape::Builder builder(store, options);
    // While the position is still that of the step.
    if (rows.parts() > 1) model.append_loss_totals(builder, source, static_cast<std::int32_t>(rows.total()));
    optim::append_step_begin(builder, rank.rank, first);
    std::optional<StepParts> parts;
    if (rows.parts() > 1 || rank.world > 1) parts.emplace(builder, rows, rank);
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
    if (parts)
        parts->finish(ranks.by_library,
                      own.parts() > 0 ? builder.moved_statistics() : moved_elsewhere(store, model, source, rows));
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
