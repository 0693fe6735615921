#include "train/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>

#include "base/nearest.h"
#include "base/philox.h"
#include "data/resident_images.h"
#include "models/registry.h"
#include "train/engine.h"
#include "train/recipe_keys.h"

namespace millrace::train {
namespace {

constexpr std::uint32_t kImages = 54000, kSide = 28, kClasses = 10;
static_assert(kSide * kSide % 4 == 0);
constexpr std::size_t kLeastWindows = 7;
constexpr double kWindowMs = 100;
constexpr std::uint64_t kWarmUp = 20;

/// Random images, as many as whole batches take, so that every step has the same size.
std::shared_ptr<const data::ImageSet> random_images(std::int32_t batch) {
    auto set = std::make_shared<data::ImageSet>();
    const auto fill = [](data::LabeledImages& images, std::uint32_t count, std::uint64_t seed) {
        images.count = count;
        images.rows = images.columns = kSide;
        images.pixels.resize(std::size_t{count} * kSide * kSide);
        images.labels.resize(count);
        for (std::size_t i = 0; i < images.pixels.size(); i += 4) {  // an image has a multiple of four pixels
            const std::uint32_t bits = base::random_bits(seed, 0, 0, 0, i);
            std::memcpy(images.pixels.data() + i, &bits, sizeof bits);
        }
        for (std::size_t i = 0; i < images.labels.size(); ++i)
            images.labels[i] = static_cast<std::uint8_t>(base::random_bits(seed, 1, 0, 0, i) % kClasses);
    };
    const auto rows = static_cast<std::uint32_t>(batch);
    fill(set->train, kImages / rows * rows, 1);
    fill(set->test, kClasses, 2);
    set->name = "random";
    set->classes = kClasses;
    set->pixels = {0.286, 0.353};
    for (std::uint32_t i = 0; i < set->train.count; ++i) set->split.training.push_back(i);
    return set;
}

base::Result<std::unique_ptr<Engine>> build(const BenchWorkload& workload, const BenchOptions& options, OurTimes& times) {
    base::RecipeOverrides overrides;
    overrides.flags = {"model.name=" + workload.model, "model.preset=" + workload.preset,
                       fmt::format("train.batch={}", workload.batch), fmt::format("members={}", workload.members)};
    MILLRACE_LET(recipe, parse_recipe("", "bench", overrides));
    MILLRACE_LET(precision, choose_precision(workload.f32 ? "f32" : "auto", options.device));
    const auto set = random_images(workload.batch);
    MILLRACE_LET(settings, read_settings(recipe, static_cast<std::int32_t>(set->train.count)));
    MILLRACE_LET(model, models::make(recipe, {kSide * kSide, kClasses}));
    MILLRACE_LET(backend, ops::make_backend(options.device, {false, options.threads}));
    times.device = fmt::format("{}: {}", ops::name_of(options.device), backend->description());
    times.precision = precision == tape::Precision::bf16 ? "bf16" : "f32";
    EngineOptions engine_options;
    engine_options.precision = precision;
    return Engine::create(std::move(backend), std::move(model), std::make_unique<data::ResidentImages>(set), settings,
                          engine_options);
}

}  // namespace

std::vector<BenchWorkload> bench_workloads(ops::DeviceKind device) {
    std::vector<BenchWorkload> all{{"collective-debug-b32", "collective", "debug", 32, 1, false},
                                   {"collective-debug-b128", "collective", "debug", 128, 1, false},
                                   {"collective-phase1-b256", "collective", "phase1", 256, 1, false},
                                   {"collective-debug-b32-k16", "collective", "debug", 32, 16, false}};
    if (device != ops::DeviceKind::cuda) return all;
    const std::size_t count = all.size();
    for (std::size_t i = 0; i < count; ++i) {
        BenchWorkload full = all[i];
        full.name += "-f32";
        full.f32 = true;
        all.push_back(full);
    }
    return all;
}

base::Result<std::vector<BenchWorkload>> select_workloads(std::vector<BenchWorkload> all, const std::vector<std::string>& names) {
    std::vector<std::string> known;
    known.reserve(all.size());
    for (const BenchWorkload& workload : all) known.push_back(workload.name);
    for (const std::string& name : names)
        if (std::find(known.begin(), known.end(), name) == known.end()) {
            const std::string nearest = base::nearest_name(name, known);
            return base::Error{fmt::format("no workload is called '{}'{}; there are {}", name,
                                           nearest.empty() ? "" : fmt::format(" (did you mean {}?)", nearest),
                                           fmt::join(known, ", "))};
        }
    if (!names.empty())
        std::erase_if(all, [&](const BenchWorkload& workload) {
            return std::find(names.begin(), names.end(), workload.name) == names.end();
        });
    return all;
}

Timing timing_of(std::vector<double> times) {
    MILLRACE_ASSERT(!times.empty());
    std::sort(times.begin(), times.end());
    const auto quarter = [&](std::size_t n) { return times[std::min(times.size() - 1, n * times.size() / 4)]; };
    return {quarter(2), quarter(1), quarter(3), times.size()};
}

base::Result<OurTimes> time_workload(const BenchWorkload& workload, const BenchOptions& options) {
    OurTimes times;
    MILLRACE_LET(engine, build(workload, options, times));
    const auto steps_per_epoch = static_cast<std::uint64_t>(engine->epoch().count());
    std::uint64_t step = 0;
    const auto window = [&](std::uint64_t count) {
        const auto begin = std::chrono::steady_clock::now();
        for (std::uint64_t i = 0; i < count; ++i) engine->launch_step(step++ % steps_per_epoch);
        engine->backend().synchronize();
        return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count() /
               static_cast<double>(count);
    };
    window(kWarmUp);
    const auto count = static_cast<std::uint64_t>(std::clamp(kWindowMs / window(5), 1.0, 5000.0));
    const auto begin = std::chrono::steady_clock::now();
    while (times.windows.size() < kLeastWindows ||
           std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() < options.seconds)
        times.windows.push_back(window(count));
    MILLRACE_TRY(engine->backend().check());
    times.replayed = engine->captured();
    return times;
}

}  // namespace millrace::train
