#include "train/step_program.h"

#include "ops/step/step.h"
#include "optim/update.h"

namespace millrace::train {
namespace {

void append_micro_end(tape::Builder& builder, std::int32_t rows, std::int32_t samples, bool training, base::Rank rank = {}) {
    ops::MicroEndParams params{static_cast<std::uint32_t>(rows), static_cast<std::uint32_t>(samples), training, rank.world};
    ops::Record record{&ops::micro_end::kDef, params, {}, 0, "step"};
    record.slots[ops::micro_end::state] = builder.store().state();
    builder.append(std::move(record));
}

}  // namespace

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

void append_reduce(tape::Builder& /*builder*/, base::Rank rank) {
    MILLRACE_ASSERT(rank.world == 1, "several machines need an all-reduce of the gradients");
}

tape::Builder build_training_step(tape::Store& store, models::Model& model, data::BatchSource& source,
                                  const optim::OptimizerSettings& settings, const StepRows& rows, models::Outputs* outputs,
                                  int memory_level, base::Rank rank) {
    MILLRACE_ASSERT(rows.total() > 0, "a step without rows");
    tape::BuildOptions options;
    options.memory_level = memory_level;
    // All steps of a run agree on this: one that overwrites would leave gradients behind for one that adds.
    options.accumulate = settings.accumulation > 1;
    options.defer_weight_gradients = store.backend().kind() == ops::DeviceKind::cuda;
    tape::Builder builder(store, options);
    optim::append_step_begin(builder, rank);
    if (rows.parts() > 1) model.append_loss_totals(builder, source, static_cast<std::int32_t>(rows.total()));
    builder.close_section();

    const std::int32_t samples = source.samples(data::Part::train);
    auto append_micro_batches = [&](std::int32_t micro_rows, std::int32_t repeat) {
        if (micro_rows == 0 || repeat == 0) return;
        options.share = static_cast<double>(micro_rows) / static_cast<double>(rows.total());
        builder.set_options(options);
        builder.restart_op_numbers();
        models::Outputs built = model.build(builder, source, data::Part::train, micro_rows);
        if (outputs != nullptr) *outputs = std::move(built);
        append_micro_end(builder, micro_rows, samples, true, rank);
        builder.close_section(repeat);
    };
    append_micro_batches(rows.rows, rows.full);
    append_micro_batches(rows.tail, 1);

    append_reduce(builder, rank);
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
    if (keep_predictions && built.labels.present()) {
        builder.keep(built.prediction.view);
        builder.keep(built.labels);
    }
    if (outputs != nullptr) *outputs = std::move(built);
    append_micro_end(builder, rows, source.samples(part), false);
    builder.close_section();
    return builder;
}

}  // namespace millrace::train
