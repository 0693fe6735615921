#include "train/engine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/log.h"
#include "comm/group.h"
#include "ops/parts/parts.h"
#include "optim/update.h"

namespace millrace::train {

using data::Part;

namespace {

/// The optimizer's settings when each batch runs in micro-batches of `rows`.
optim::OptimizerSettings in_micro_batches(const RunSettings& settings, std::int32_t rows) {
    MILLRACE_ASSERT(rows > 0 && settings.rank_rows() % rows == 0, "micro-batches divide what a rank has of a batch");
    optim::OptimizerSettings optimizer = settings.optimizer;
    optimizer.accumulation *= settings.batch / rows;
    return optimizer;
}

}  // namespace

base::Result<std::unique_ptr<Engine>> Engine::create(std::unique_ptr<ops::Backend> backend, std::unique_ptr<models::Model> model,
                                                     std::unique_ptr<data::BatchSource> source, const RunSettings& settings,
                                                     const EngineOptions& options) {
    if (settings.members > 1 && model->single_member_only())
        return base::Error{fmt::format("members = {}, but {} trains one member at a time", settings.members, settings.model)};
    std::unique_ptr<Engine> engine(new Engine);
    engine->backend_ = std::move(backend);
    engine->model_ = std::move(model);
    engine->source_ = std::move(source);
    engine->scores_macro_f1_ = settings.checkpoint.by_macro_f1();
    engine->class_reports_ = (options.class_reports || engine->scores_macro_f1_) && engine->model_->classifies();
    if (options.group != nullptr) engine->group_ = options.group;
    engine->domains_ = settings.domains;
    MILLRACE_TRY(data::require_fields(engine->source_->fields(), engine->model_->wants(), settings.model));

    tape::StoreOptions store_options;
    store_options.members = settings.members;
    store_options.precision = options.precision;
    store_options.ring_capacity = options.training ? options.ring_capacity : 1;
    store_options.first_moment = store_options.second_moment = false;
    if (options.training) optim::request_arenas(settings.optimizer, store_options);
    engine->store_ = std::make_unique<tape::Store>(*engine->backend_, store_options);
    MILLRACE_TRY(engine->model_->declare(*engine->store_));
    MILLRACE_TRY(engine->source_->declare(*engine->store_));
    MILLRACE_TRY(engine->store_->seal());
    engine->arena_ = std::make_unique<tape::Arena>(*engine->backend_);
    base::Status planned = engine->plan(settings, options.training);
    if (!planned.ok() && options.no_room != nullptr) *options.no_room = true;
    MILLRACE_TRY(std::move(planned));
    if (engine->eval_batch_ != settings.eval_batch)
        MILLRACE_LOG(info, "eval.batch = {} does not fit the memory: evaluating {} at a time", settings.eval_batch,
                     engine->eval_batch_);
    engine->log_memory("planning");
    MILLRACE_TRY(engine->store_->allocate());
    MILLRACE_TRY(engine->source_->upload(*engine->store_));
    MILLRACE_TRY(engine->arena_->allocate());
    engine->log_memory("allocating");
    for (tape::Program* program : engine->programs()) MILLRACE_TRY(program->prepare());
    engine->log_memory("preparing");
    if (engine->group_->size() == 1) MILLRACE_TRY(engine->warm_up(settings));
    return engine;
}

base::Status Engine::warm_up(const RunSettings& settings) {
    const bool capture = settings.capture && !settings.debug_nonfinite && backend_->can_capture();
    if (capture) MILLRACE_TRY(capture_programs());
    if (settings.telemetry.components) MILLRACE_TRY(add_phase_programs(capture));
    start_afresh(settings);
    const std::optional<ops::MemoryState> device = backend_->memory();
    used_ = device ? static_cast<std::int64_t>(device->before) - static_cast<std::int64_t>(device->free)
                   : store_->allocated_bytes() + arena_->allocated_bytes();
    MILLRACE_LOG(profiling, "{}", plan_text());
    return base::ok();
}

MemoryNeeds Engine::needs() const {
    MemoryNeeds needs = needs_of(*store_, arena_->size());
    if (const auto device = backend_->memory()) {
        needs.scratch += static_cast<std::int64_t>(device->held);
        needs.other -= store_->bytes(tape::Role::metric);  // pinned memory of the host
        return needs;
    }
    ops::WorkingMemory working;
    for (const tape::Program* program : programs()) working.grow_to(program->working_memory());
    needs.scratch += static_cast<std::int64_t>(working.common + working.workers);
    needs.passing = passing_bytes(members(), needs.parameters);
    needs.held = resident_bytes();
    return needs;
}

std::vector<models::Attachment> Engine::attachments() const {
    std::vector<models::Attachment> all = model_->attachments();
    if (std::string preparation = source_->preparation(); !preparation.empty())
        all.push_back({models::kPreparation, std::move(preparation)});
    return all;
}

std::vector<std::int32_t> Engine::micro_batches(const RunSettings& settings) const {
    std::vector<std::int32_t> sizes = divisors(settings.rank_rows());
    std::erase_if(sizes, [&](std::int32_t rows) {
        const std::int32_t tail = source_->samples(Part::train) % rows;
        return rows < settings.rank_rows() && (rows < model_->minimum_rows() || (tail > 0 && tail < model_->minimum_rows()));
    });
    return sizes;
}

base::Status Engine::plan(const RunSettings& settings, bool training) {
    batch_ = micro_batch_ = settings.rank_rows();
    eval_batch_ = static_cast<std::int32_t>(
        std::min({std::int64_t{settings.eval_batch}, source_->most_rows(Part::validation), source_->most_rows(Part::test)}));
    const std::int64_t step_rows = std::int64_t{settings.batch} * settings.optimizer.accumulation;
    if (training && step_rows > source_->most_rows(Part::train))
        return base::Error{
            fmt::format("a step takes {} rows and may take at most the {} of a window of data; a smaller train.batch "
                        "or a larger data.window would be right",
                        step_rows, source_->most_rows(Part::train))};
    std::optional<MemoryLimit> limit = memory_limit(settings.memory_limit, *backend_);
    if (std::optional<MemoryLimit> host = host_memory_limit()) {
        host->bytes = std::max<std::int64_t>(0, host->bytes - passing_bytes(members(), store_->bytes(tape::Role::parameter)));
        // A limit of the recipe gives no more memory than the machine has.
        if (!backend_->memory() && (!limit || host->bytes < limit->bytes)) limit = host;
    }
    const auto fits = [&] {
        needs_ = needs();
        return !limit || needs_.total() <= limit->bytes;
    };
    // Rows of an evaluation know nothing of each other, so fewer at once change no figure.
    for (add_evaluation_programs(); eval_batch_ > 1 && !fits(); add_evaluation_programs()) eval_batch_ = (eval_batch_ + 1) / 2;
    if (!fits()) return refuse_plan(needs_, *limit, {});
    if (!training) return base::ok();
    for (const std::int32_t rows : settings.micro_batch > 0 ? std::vector{settings.micro_batch} : micro_batches(settings)) {
        micro_batch_ = rows;
        add_training_programs(settings);
        // Parts of a batch whose rows know of each other are another computation, which is for the user to choose.
        if (rows < batch_ && settings.micro_batch == 0 && !row_couplings_.empty()) break;
        // Training has scratch of its own beside that of evaluation.
        while (!fits() && eval_batch_ > 1 && evaluation_.activations == arena_->size().activations) {
            eval_batch_ = (eval_batch_ + 1) / 2;
            add_evaluation_programs();
            add_training_programs(settings);
        }
        if (fits()) return base::ok();
    }
    return refusal(settings, *limit);
}

base::Error Engine::refusal(const RunSettings& settings, const MemoryLimit& limit) {
    std::vector<MemoryTrial> trials;
    const std::vector<std::int32_t> sizes = micro_batches(settings);
    const std::vector<std::string> couplings = settings.micro_batch == 0 ? row_couplings_ : std::vector<std::string>{};
    // The largest micro-batch that fits, for every way of building the model; the smallest where none does.
    std::vector<std::string> levels = model_->memory_levels();
    levels.insert(levels.begin(), "");
    for (std::size_t level = 0; level < levels.size(); ++level) {
        MemoryTrial trial;
        for (const std::int32_t rows : sizes) {
            micro_batch_ = rows;
            add_training_programs(settings, static_cast<int>(level));
            trial = {fmt::format("{}{}train.micro_batch = {}", levels[level], level == 0 ? "" : " and ", rows), needs().total()};
            if (trial.bytes <= limit.bytes) break;
        }
        trials.push_back(std::move(trial));
    }
    return refuse_plan(needs_, limit, trials, couplings);
}

void Engine::add_training_programs(const RunSettings& settings, int memory_level) {
    const optim::OptimizerSettings optimizer = in_micro_batches(settings, micro_batch_);
    epoch_ = divide_epoch(source_->samples(Part::train), micro_batch_, optimizer.accumulation);
    arena_->shrink_to(evaluation_);
    row_couplings_.clear();
    const auto build = [&](const char* name, const StepRows& rows, models::Outputs* outputs) {
        tape::Builder built =
            build_training_step(*store_, *model_, *source_, optimizer, rows, outputs, memory_level, settings.ranks);
        if (row_couplings_.empty()) row_couplings_ = built.row_couplings();
        return std::make_unique<tape::Program>(name, *store_, std::move(built), *arena_);
    };
    steps_ = {};
    if (epoch_.regular > 0) steps_[0].program = build("step", epoch_.step, &step_outputs_);
    if (epoch_.last.total() > 0) steps_[1].program = build("last step of an epoch", epoch_.last, nullptr);
}

void Engine::add_evaluation_programs() {
    const std::int32_t batch = eval_batch_;
    arena_->shrink_to({});
    for (const Part part : {Part::validation, Part::test}) {
        Pass& pass = passes_[static_cast<std::size_t>(part)] = {};
        const std::int32_t samples = source_->samples(part);
        const auto build = [&](const char* name, std::int32_t rows, Pass::Batch& made) {
            made.program = std::make_unique<tape::Program>(
                fmt::format("{} {}", data::name_of(part), name), *store_,
                build_evaluation(*store_, *model_, *source_, part, rows, &made.outputs, class_reports_), *arena_);
        };
        if (domains_.empty()) pass.sections.push_back({{}, 0, samples});
        for (const data::Domain& domain : domains_) pass.sections.push_back({{}, 0, domain.count(part)});
        for (Pass::Section& section : pass.sections) {
            section.batches = section.rows / batch;
            if (section.batches > 0 && !pass.whole.program) build("batch", batch, pass.whole);
            if (section.rows % batch > 0) build("tail", section.rows % batch, section.tail);
        }
    }
    evaluation_ = arena_->size();
}

std::vector<tape::Program*> Engine::programs() const {
    std::vector<tape::Program*> all;
    for (const Step& step : steps_)
        if (step.program) all.push_back(step.program.get());
    for (const Pass& pass : passes_) {
        if (pass.whole.program) all.push_back(pass.whole.program.get());
        for (const Pass::Section& section : pass.sections)
            if (section.tail.program) all.push_back(section.tail.program.get());
    }
    return all;
}

base::Status Engine::capture_programs() {
    // Capturing forbids lazy loading of kernels, so each program runs once before; start_afresh() removes what that left behind.
    store_->initialize(std::vector<std::uint64_t>(static_cast<std::size_t>(members()), 1));
    for (tape::Program* program : programs()) program->run();
    backend_->synchronize();
    MILLRACE_TRY(backend_->check());
    log_memory("a first run");
    for (tape::Program* program : programs()) MILLRACE_TRY(program->capture());
    log_memory("capturing");
    return base::ok();
}

/// One pass with every kernel timed: what it leaves behind is cleared before the run starts.
base::Result<double> Engine::measure_messages(const RunSettings& settings) {
    MILLRACE_TRY(warm_up(settings));
    const Step& step = steps_[steps_[0].program ? 0 : 1];
    store_->initialize(std::vector<std::uint64_t>(static_cast<std::size_t>(members()), 1));
    step.program->run();
    MILLRACE_LET(times, tape::time_one_pass(*step.program, *backend_));
    double all = 0, messages = 0;
    for (const tape::KernelTime& kernel : times) {
        all += kernel.microseconds;
        if (kernel.text.starts_with(ops::exchange::kDef.name)) messages += kernel.microseconds;
    }
    start_afresh(settings);
    MILLRACE_TRY(backend_->check());
    return all > 0 ? messages / all : 0;
}

base::Status Engine::add_phase_programs(bool capture) {
    std::vector<std::string> layers;
    for (const models::Component& component : model_->components()) layers.push_back(component.layers);
    for (Step& step : steps_) {
        if (!step.program) continue;
        MILLRACE_SET(step.phases, tape::PhaseProgram::create(*step.program, *backend_, capture, layers));
    }
    return base::ok();
}

void Engine::start_afresh(const RunSettings& settings) {
    for (const tensor::View& view :
         {store_->gradient_arena(), store_->first_moment(), store_->second_moment(), store_->ring(), store_->ring_counter()})
        store_->clear(view);
    std::vector<ops::MemberState> states(static_cast<std::size_t>(members()));
    apply_settings(settings, states);
    optim::set_loss_scale(store_->options().precision, states);
    store_->write_states(states);
    store_->initialize(settings.seeds);
}

data::RowsAhead Engine::rows_of(std::uint64_t step) const {
    const auto each = static_cast<std::uint64_t>(epoch_.count());
    const std::uint64_t index = step % each;
    const bool regular = index < static_cast<std::uint64_t>(epoch_.regular);
    return {Part::train, static_cast<std::uint32_t>(step / each), static_cast<std::int64_t>(index) * epoch_.step.total(),
            (regular ? epoch_.step : epoch_.last).total(), step};
}

std::vector<std::vector<double>> Engine::kept_of_step() const {
    std::vector<std::vector<double>> tensors;
    for (tensor::View view : step_outputs_.kept) {
        view.k = 1;
        tensors.push_back(steps_[0].program->read(view));
    }
    return tensors;
}

void Engine::log_memory(const char* after) const {
    if (const auto device = backend_->memory())
        MILLRACE_LOG(profiling, "memory after {}: {:.2f} MiB taken, {} allocations", after,
                     (static_cast<double>(device->before) - static_cast<double>(device->free)) / (1 << 20), device->allocations);
}

std::string Engine::memory_text() const {
    std::string text = needs_.text();
    if (micro_batch_ != batch_)
        text += fmt::format("; a batch of {} runs in {} micro-batches of {}", batch_, batch_ / micro_batch_, micro_batch_);
    return text;
}

std::string Engine::step_listing() const {
    std::string text;
    for (const Step& step : steps_)
        if (step.program)
            text += fmt::format("{}{} launches, {} nodes when captured\n", step.program->listing(), step.program->kernel_count(),
                                step.program->node_count());
    return text;
}

std::string Engine::plan_to_share() const {
    return fmt::format("micro-batches of {} rows\nevaluation of {} rows\n{}\n{}", micro_batch_, eval_batch_,
                       fmt::join(backend_->forms(), "\n"), steps_[0].program ? steps_[0].program->listing() : "");
}

std::string Engine::plan_text() const {
    std::string text = "programs:";
    for (const tape::Program* program : programs())
        text += fmt::format("\n  {}: {} records, {} launches, {}", program->name(), program->records().size(),
                            program->captured() ? 1 : program->kernel_count(), program->plan().text());
    return text;
}

}  // namespace millrace::train
