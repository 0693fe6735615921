#pragma once
// Everything a run keeps on its device: parameters, data and the prepared programs for training, validation and test.

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/batch_source.h"
#include "models/model.h"
#include "ops/backend.h"
#include "tape/instrument.h"
#include "tape/program.h"
#include "tape/store.h"
#include "train/listener.h"
#include "train/memory_plan.h"
#include "train/run_settings.h"
#include "train/step_program.h"

namespace millrace::train {

struct EngineOptions {
    tape::Precision precision = tape::Precision::f32;
    bool training = true;  ///< false: evaluation programs alone, no optimizer state
    std::uint32_t ring_capacity = 4096;
    bool class_reports = false;    ///< evaluate() gives classifiers a report per class; read_outputs() has what they score
    comm::Group* group = nullptr;  ///< ops::BackendOptions::group of the backend; null: this process alone
    bool* no_room = nullptr;       ///< set when the plan did not fit into the memory; borrowed
};

class Engine {
public:
    /// Declares, plans, allocates, prepares, captures where the device can and draws the initial parameters: once it has planned
    /// and allocated nothing allocates. With a group it runs nothing: see warm_up().
    static base::Result<std::unique_ptr<Engine>> create(std::unique_ptr<ops::Backend> backend,
                                                        std::unique_ptr<models::Model> model,
                                                        std::unique_ptr<data::BatchSource> source, const RunSettings& settings,
                                                        const EngineOptions& options);

    /// Returns when the rows of step number `step` of the run, from 0, are there. `done` says how many the device has finished.
    base::Status await_rows(std::uint64_t step, const data::StepsDone& done) { return source_->await_rows(rows_of(step), done); }
    /// Starts reading them and returns at once.
    base::Status prefetch_rows(std::uint64_t step, const data::StepsDone& done) {
        data::RowsAhead rows = rows_of(step);
        rows.prefetch = true;
        return source_->await_rows(rows, done);
    }
    /// Enqueues step number `index` of an epoch, counted from 0: never waits for the device, never allocates.
    void launch_step(std::uint64_t index) noexcept { step_of(index).program->launch(); }
    /// The same record by record with checks; the first value that is not finite, if any.
    std::optional<tape::NonFinite> checked_step(std::uint64_t index) { return step_of(index).program->run_checked(); }

    /// The same step with marks between its parts, by a second program that leaves the same bits; waits for it. Only with
    /// settings.telemetry.components.
    base::Result<tape::PhaseTimes> component_step(std::uint64_t index) {
        tape::PhaseProgram* phases = step_of(index).phases.get();
        MILLRACE_ASSERT(phases != nullptr, "component times were not asked for");
        phases->launch();
        return phases->times();
    }
    /// The same, uncaptured, every kernel timed on the device; waits for it.
    base::Result<std::vector<tape::KernelTime>> operator_step(std::uint64_t index) {
        return tape::time_one_pass(*step_of(index).program, *backend_);
    }
    /// Every kernel of the regular step alone, for profiling: parameters and counters are left as those runs leave them.
    base::Result<std::vector<tape::KernelTime>> time_kernels() { return steps_[0].program->time_kernels(kKernelRepeats); }
    /// The regular step launched twice with marks, to see what lies between two launches.
    base::Result<std::unique_ptr<tape::LaunchPair>> launch_pair() {
        MILLRACE_ASSERT(steps_[0].program != nullptr, "an epoch has no regular step");
        return tape::LaunchPair::create(*steps_[0].program, *backend_, captured());
    }
    /// Outputs::kept of the newest regular step, of the first member; waits for the device.
    [[nodiscard]] std::vector<std::vector<double>> kept_of_step() const;
    /// Floating-point operations of the matrix products of a step, all members.
    [[nodiscard]] tape::Flops flops(std::uint64_t index) const { return step_of(index).program->flops(); }
    /// What the device's maker promises at this precision, per second; absent where that is not known.
    [[nodiscard]] std::optional<double> peak_flops() const {
        return backend_->peak_flops(tape::real_of(store_->options().precision));
    }

    /// Loss and accuracy of every member on `part`, and what the model's family measures besides, also on each domain where the
    /// data has several: no batch has rows of two. Waits for the device; the members' state is as before afterwards. Empty when
    /// the part has no samples, or when `stop` was not 0 before the end. `wanted`: members of which the family measures
    /// something; empty: all.
    base::Result<std::vector<Score>> evaluate(data::Part part, const std::atomic<int>* stop = nullptr,
                                              const std::vector<bool>& wanted = {});

    /// Takes Outputs::prediction of all members, [K, rows of it, width], of samples [first, first + rows) of a part.
    using TakeOutputs = std::function<base::Status(std::int64_t first, std::int64_t rows, const std::vector<double>& values)>;
    /// Of the first `samples` of `part` batch by batch, and of what else the last batch has. The data is one whole. Waits for the
    /// device; the members' state is as before afterwards.
    base::Status read_outputs(data::Part part, std::int64_t samples, const TakeOutputs& take);

    using Build = std::function<models::Outputs(tape::Builder& builder, data::BatchSource& source, data::Part part)>;
    /// What a program of one row that `build` writes keeps after a run on sample number `position` of `part`, from 0. Plans and
    /// allocates that program, waits for the device; the members' state is as before afterwards.
    base::Result<std::vector<std::vector<double>>> run_sample(data::Part part, std::int32_t position, const Build& build);

    [[nodiscard]] const EpochSteps& epoch() const { return epoch_; }
    [[nodiscard]] tape::Store& store() { return *store_; }
    [[nodiscard]] ops::Backend& backend() { return *backend_; }
    [[nodiscard]] data::BatchSource& source() { return *source_; }
    [[nodiscard]] models::Model& model() { return *model_; }
    /// What a checkpoint holds beside parameters: of the model, and how its data was prepared.
    [[nodiscard]] std::vector<models::Attachment> attachments() const;
    [[nodiscard]] int members() const { return store_->members(); }
    [[nodiscard]] bool captured() const { return steps_[0].program && steps_[0].program->captured(); }
    /// What was planned, and in how many micro-batches a batch runs when that is not one.
    [[nodiscard]] std::string memory_text() const;
    [[nodiscard]] const MemoryNeeds& memory_needs() const { return needs_; }
    /// Bytes that setting up took: on a GPU what its free memory fell by since the backend was made (captured launches and
    /// kernels included), elsewhere what was allocated.
    [[nodiscard]] std::int64_t memory_used() const { return used_; }
    [[nodiscard]] std::int32_t micro_batch() const { return micro_batch_; }
    [[nodiscard]] std::int32_t eval_batch() const { return eval_batch_; }
    /// With a group every rank calls it, before anything else, once all have an engine: a run of the programs waits for the
    /// others. An error may leave them waiting.
    base::Status warm_up(const RunSettings& settings);
    /// The same, before weights are loaded; runs two steps and starts afresh. What messages take of the time of a regular step.
    base::Result<double> measure_messages(const RunSettings& settings);
    /// What computes with several rows of a batch at once (Builder::couple_rows), so that parts of a batch do not add up to it.
    [[nodiscard]] const std::vector<std::string>& row_couplings() const { return row_couplings_; }
    /// The arena's plan of the largest program and the programs by name, for the log.
    [[nodiscard]] std::string plan_text() const;
    /// The kernels of the regular training step.
    [[nodiscard]] const tape::Program& step_program() const { return *steps_[0].program; }
    /// What ranks must have alike: micro-batch, forms and the records of the regular step.
    [[nodiscard]] std::string plan_to_share() const;
    /// The records of the training steps: what makes two engines run the same programs.
    [[nodiscard]] std::string step_listing() const;

private:
    static constexpr int kKernelRepeats = 20;
    struct Step {
        std::unique_ptr<tape::Program> program;      ///< null where an epoch has no such step
        std::unique_ptr<tape::PhaseProgram> phases;  ///< null unless settings.telemetry.components
    };
    struct Pass {
        struct Batch {
            std::unique_ptr<tape::Program> program;
            models::Outputs outputs;
        };
        struct Section {
            Batch tail;
            std::int64_t batches = 0;  ///< of `whole`
            std::int32_t rows = 0;

            [[nodiscard]] std::int64_t count() const { return batches + (tail.program ? 1 : 0); }
        };
        Batch whole;
        std::vector<Section> sections;  ///< one for each domain, or one
    };
    Engine() = default;
    /// Adds the programs with such a micro_batch_ and eval_batch_ that they fit, or refuses the plan.
    base::Status plan(const RunSettings& settings, bool training);
    [[nodiscard]] base::Error refusal(const RunSettings& settings, const MemoryLimit& limit);
    [[nodiscard]] MemoryNeeds needs() const;  ///< of the programs that were added
    /// In the place of those before: for evaluation at eval_batch_ first, then for training at micro_batch_, which also finds
    /// row_couplings_.
    void add_evaluation_programs();
    void add_training_programs(const RunSettings& settings, int memory_level = 0);
    base::Status capture_programs();
    base::Status add_phase_programs(bool capture);
    void log_memory(const char* after) const;
    void start_afresh(const RunSettings& settings);
    struct Evaluation;  ///< engine_evaluate.cpp
    [[nodiscard]] std::vector<tape::Program*> programs() const;
    [[nodiscard]] data::RowsAhead rows_of(std::uint64_t step) const;
    [[nodiscard]] const Step& step_of(std::uint64_t index) const {
        return steps_[index < static_cast<std::uint64_t>(epoch_.regular) ? 0 : 1];
    }
    /// Divisors of the batch, largest first, that leave every part of an epoch the rows that the model needs.
    [[nodiscard]] std::vector<std::int32_t> micro_batches(const RunSettings& settings) const;

    std::unique_ptr<ops::Backend> backend_;  // declared first: memory goes back to it
    std::unique_ptr<tape::Store> store_;
    std::unique_ptr<tape::Arena> arena_;
    std::unique_ptr<models::Model> model_;
    std::unique_ptr<data::BatchSource> source_;
    EpochSteps epoch_;
    std::int32_t batch_ = 0, micro_batch_ = 0, eval_batch_ = 0;
    std::vector<data::Domain> domains_;
    std::vector<std::string> row_couplings_;
    tape::Arena::Size evaluation_;  ///< of arena_ before the training programs
    MemoryNeeds needs_;
    std::int64_t used_ = 0;
    bool class_reports_ = false, scores_macro_f1_ = false;
    comm::Group alone_;
    comm::Group* group_ = &alone_;  ///< EngineOptions::group, where that is not null
    std::array<Step, 2> steps_;     ///< the regular one and the last of an epoch
    models::Outputs step_outputs_;
    std::array<Pass, data::kPartCount> passes_;
};

}  // namespace millrace::train
