#include "bench/bench.h"

#include <fmt/format.h>
#include <sys/file.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <vector>

#include "base/nearest.h"
#include "base/philox.h"
#include "bench/row_recipe.h"
#include "io/file.h"
#include "models/backend_options.h"
#include "models/registry.h"
#include "ops/dense/dense.h"
#include "tensor/element.h"
#include "train/engine.h"

namespace millrace::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kLeastWindows = 7;
constexpr double kWindowMs = 100, kShortestMs = 10;
constexpr std::uint64_t kWarmUp = 20;  ///< steps
constexpr double kWarmUpMs = 1000;     ///< enough of them where a step takes long
constexpr int kGaps = 9, kLaunchesBeforeGap = 3;

double milliseconds_since(Clock::time_point begin) {
    return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

/// Where MILLRACE_TURNS names a file, processes that share a device prepare together, and each is timed alone; `turn` in
/// bench/peers/command.py is the peers' side. Held until the file is closed.
base::Result<io::FileDescriptor> take_turn(bool alone) {
    const char* path = std::getenv("MILLRACE_TURNS");
    if (path == nullptr || *path == '\0') return io::FileDescriptor();
    MILLRACE_LET(opened, io::open_regular(path));
    if (flock(opened.file.get(), alone ? LOCK_EX : LOCK_SH) != 0) return io::system_error("cannot lock", path, errno);
    return std::move(opened.file);
}

base::Result<std::unique_ptr<train::Engine>> build(const Workload& workload, const base::Recipe& recipe, const Options& options,
                                                   OurTimes& times) {
    MILLRACE_LET(precision, train::choose_precision(recipe.text("precision"), options.device));
    MILLRACE_LET(family, models::find_family(workload.model));
    MILLRACE_LET(source, random_data(recipe, family->data));
    const std::int32_t samples = source->samples(data::Part::train);
    MILLRACE_LET(settings, train::read_settings(recipe, samples));
    settings.telemetry.components = options.parts;
    MILLRACE_LET(model, models::make(recipe, source->fields()));
    MILLRACE_TRY(train::check_batch_rows(recipe, settings, samples, model->minimum_rows()));
    if (const base::Status fits = model->check_rows(settings.batch); !fits.ok())
        return recipe.bad("train.batch", fits.error().message);
    ops::BackendOptions backend_options = models::backend_options(recipe, options.device, precision);
    if (options.threads > 0) backend_options.threads = options.threads;
    backend_options.rewrites_off = options.rewrites_off;
    backend_options.forms = options.forms;
    MILLRACE_LET(backend, ops::make_backend(options.device, backend_options));
    times.device = fmt::format("{}: {}", ops::name_of(options.device), backend->description());
    times.precision = models::products_in(backend_options, precision);
    times.batch = settings.batch * settings.optimizer.accumulation * settings.members;
    train::EngineOptions engine_options;
    engine_options.precision = precision;
    return train::Engine::create(std::move(backend), std::move(model), std::move(source), settings, engine_options);
}

class StepTimer {
public:
    /// Seven windows fill `seconds`, none longer than kWindowMs.
    StepTimer(train::Engine& engine, double seconds)
        : engine_(engine),
          steps_(static_cast<std::uint64_t>(engine.epoch().count())),
          window_ms_(std::clamp(1e3 * seconds / kLeastWindows, kShortestMs, kWindowMs)),
          warm_up_ms_(std::min(1e3 * seconds, kWarmUpMs)) {}

    void launch() { engine_.launch_step(step_++ % steps_); }
    /// Mean milliseconds of `count` steps.
    double window(std::uint64_t count) {
        const auto begin = Clock::now();
        for (std::uint64_t i = 0; i < count; ++i) launch();
        engine_.backend().synchronize();
        return milliseconds_since(begin) / static_cast<double>(count);
    }
    /// Warms up; how many steps make a window.
    std::uint64_t steps_per_window() {
        const auto begin = Clock::now();
        double last = window(1);
        for (std::uint64_t i = 1; i < kWarmUp && milliseconds_since(begin) < warm_up_ms_; ++i) last = window(1);
        if (last < window_ms_ / 5) last = window(5);  // without the wait after each
        return static_cast<std::uint64_t>(std::clamp(window_ms_ / last, 1.0, 5000.0));
    }

private:
    train::Engine& engine_;
    std::uint64_t steps_, step_ = 0;
    double window_ms_, warm_up_ms_;
};

/// Median share of a step in which the device has finished one launch and not begun the next, with the queue filled as in
/// training.
base::Result<double> idle_share(train::Engine& engine, StepTimer& timer) {
    MILLRACE_LET(pair, engine.launch_pair());
    pair->launch();
    engine.backend().synchronize();
    std::vector<double> shares;
    for (int i = 0; i < kGaps; ++i) {
        for (int before = 0; before < kLaunchesBeforeGap; ++before) timer.launch();
        pair->launch();
        timer.launch();
        engine.backend().synchronize();
        MILLRACE_LET(gap, pair->gap());
        shares.push_back(gap.period > 0 ? gap.idle / gap.period : 0);
    }
    return timing_of(shares).median;
}

void measure_windows(train::Engine& engine, StepTimer& timer, const Options& options, OurTimes& times) {
    const bool counted = options.activity && engine.backend().kind() == ops::DeviceKind::cuda;
    const std::unique_ptr<sense::Source> machine = counted ? sense::open_machine(sense::machine_options()) : nullptr;
    const std::uint64_t count = timer.steps_per_window();
    const std::optional<ops::MemoryState> before = engine.backend().memory();
    models::StepWork sum;
    (void)read_activity(machine.get());  // the next reading is of the time since this one
    const auto begin = Clock::now();
    while (times.windows.size() < kLeastWindows || milliseconds_since(begin) < 1e3 * options.seconds) {
        times.windows.push_back(timer.window(count));
        const auto work = engine.model().step_work(engine.kept_of_step(), engine.micro_batch());
        if (!work) continue;
        sum.done += work->done;
        sum.all += work->all;
        sum.steps_used += work->steps_used;
        sum.all_computed = sum.all_computed && work->all_computed;
        times.work = sum;
    }
    const GpuActivity activity = read_activity(machine.get());
    times.sm_active = activity.sm;
    times.tensor_active = activity.tensor;
    if (times.work) {
        const auto windows = static_cast<double>(times.windows.size());
        times.work = models::StepWork{sum.done / windows, sum.all / windows, sum.steps_used / windows, sum.all_computed};
    }
    if (const auto after = engine.backend().memory(); before && after)
        times.memory_growth = static_cast<std::int64_t>(before->free) - static_cast<std::int64_t>(after->free);
}

}  // namespace

base::Result<std::vector<Workload>> select_workloads(std::vector<Workload> all, const std::vector<std::string>& names) {
    std::vector<std::string> known;
    known.reserve(all.size());
    for (const Workload& workload : all) known.push_back(workload.name);
    for (const std::string& name : names)
        if (std::find(known.begin(), known.end(), name) == known.end()) {
            const std::string nearest = base::nearest_name(name, known);
            return base::Error{fmt::format("no workload is called '{}'{}; there are {}", name,
                                           nearest.empty() ? "" : fmt::format(" (did you mean {}?)", nearest),
                                           fmt::join(known, ", "))};
        }
    std::erase_if(all, [&](const Workload& workload) {
        return names.empty() ? workload.on_request : std::find(names.begin(), names.end(), workload.name) == names.end();
    });
    return all;
}

Timing timing_of(std::vector<double> times) {
    MILLRACE_ASSERT(!times.empty());
    std::sort(times.begin(), times.end());
    const auto quarter = [&](std::size_t n) { return times[std::min(times.size() - 1, n * times.size() / 4)]; };
    return {quarter(2), quarter(1), quarter(3), times.size()};
}

void OurTimes::add(const OurTimes& later) {
    windows.insert(windows.end(), later.windows.begin(), later.windows.end());
    const auto mean = [](std::optional<double>& mine, const std::optional<double>& other) {
        mine = mine && other ? std::optional((*mine + *other) / 2) : mine ? mine : other;
    };
    if (idle && later.idle) idle = std::max(*idle, *later.idle);
    mean(sm_active, later.sm_active);
    mean(tensor_active, later.tensor_active);
    if (memory_growth && later.memory_growth) *memory_growth = std::max(*memory_growth, *later.memory_growth);
}

base::Result<OurTimes> time_workload(const Workload& workload, const Options& options) {
    OurTimes times;
    MILLRACE_LET(recipe, row_recipe(workload, options));
    MILLRACE_LET(preparing, take_turn(false));
    MILLRACE_LET(engine, build(workload, recipe, options, times));
    preparing.reset();
    MILLRACE_LET(alone, take_turn(true));
    times.parameters = engine->store().trainable_count();
    times.flops = static_cast<double>(engine->flops(0).total());
    times.memory = engine->memory_used();
    times.planned = engine->memory_needs().total();
    times.replayed = engine->captured();
    StepTimer timer(*engine, options.seconds);
    measure_windows(*engine, timer, options, times);
    const bool skips = recipe.has("model.skip_arrived") && recipe.boolean("model.skip_arrived");
    if (times.work && skips) times.work->all_computed = false;
    MILLRACE_TRY(engine->backend().check());
    if (times.replayed) MILLRACE_SET(times.idle, idle_share(*engine, timer));
    if (options.parts) MILLRACE_SET(times.parts, engine->component_step(0));
    // Last: it leaves parameters and counters as its runs leave them
    if (options.kernels) MILLRACE_SET(times.kernels, engine->time_kernels());
    MILLRACE_TRY(engine->backend().check());
    return times;
}

GpuActivity read_activity(sense::Source* source, const base::Clock& clock) {
    if (source == nullptr || source->facts().gpus.empty()) return {};
    sense::Sample sample;
    source->read(clock.now(), sample);
    if (sample.gpus.empty()) return {};
    return {sample.gpus.front().sm_active, sample.gpus.front().tensor_active};
}

namespace {

constexpr int kWindows = 7;
constexpr std::size_t kPattern = std::size_t{1} << 16;  ///< random elements, repeated

std::vector<std::byte> random_elements(tensor::DType dtype) {
    std::vector<std::byte> bytes(kPattern * tensor::size_of(dtype));
    for (std::size_t i = 0; i < kPattern; ++i) {
        const float value = base::random_normal(11, 0, 0, 0, i);
        tensor::write_element(bytes.data() + i * tensor::size_of(dtype), dtype, static_cast<double>(value));
    }
    return bytes;
}

}  // namespace

std::int32_t ceiling_size(ops::DeviceKind device) { return device == ops::DeviceKind::cuda ? 8192 : 1536; }

base::Result<double> product_ceiling(ops::Backend& backend, tape::Precision precision, std::int32_t size, double window_ms,
                                     const base::Clock& clock) {
    namespace at = ops::linear_dgrad;
    const tensor::DType real = tape::real_of(precision);
    const std::size_t bytes = static_cast<std::size_t>(size) * static_cast<std::size_t>(size) * tensor::size_of(real);
    const std::vector<std::byte> pattern = random_elements(real);
    std::vector<std::unique_ptr<ops::Memory>> memory;
    ops::Record record{&ops::linear_dgrad::kDef, ops::LinearGradParams{}, {}, 0, "ceiling"};
    ops::Bound bound;
    for (const int slot : {at::dz, at::w, at::dx}) {
        MILLRACE_LET(matrix, backend.allocate(bytes));
        for (std::size_t begin = 0; slot != at::dx && begin < bytes; begin += pattern.size())
            backend.upload(matrix->data() + begin, pattern.data(), std::min(pattern.size(), bytes - begin));
        const std::int64_t stride = size, count = stride * stride;
        record.slots[static_cast<std::size_t>(slot)] = {slot, real, 1, 1, size, size, 0, count, count, stride};
        bound.operands[static_cast<std::size_t>(slot)] = {matrix->data(), real, 1, 1, size, size, count, count, stride};
        memory.push_back(std::move(matrix));
    }
    bound.record = &record;
    MILLRACE_LET(kernels, backend.prepare({&bound, 1}, {}));
    const auto window = [&](int count) {
        const std::chrono::nanoseconds begin = clock.now();
        for (int i = 0; i < count; ++i)
            for (const auto& kernel : kernels) kernel->run();
        backend.synchronize();
        return std::chrono::duration<double, std::milli>(clock.now() - begin).count() / count;
    };
    window(1);
    const int count = static_cast<int>(std::clamp(window_ms / window(1), 1.0, 10000.0));
    std::vector<double> times;
    times.reserve(kWindows);
    for (int i = 0; i < kWindows; ++i) times.push_back(window(count));
    MILLRACE_TRY(backend.check());
    const double edge = size;
    return 2 * edge * edge * edge / (timing_of(times).median * 1e-3);
}

}  // namespace millrace::bench
