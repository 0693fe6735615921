// Where the time of a training step goes: the whole step replayed, then every kernel alone.
//   step_profile [cpu|cuda] [preset] [batch] [members] [f32|bf16] [model] [KEY=VALUE of the recipe...]

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <numeric>
#include <string>

#include "base/recipe.h"
#include "bench/random_data.h"
#include "models/registry.h"
#include "optim/settings.h"
#include "tape/program.h"
#include "train/step_program.h"

namespace {

using namespace millrace;

template <class F>
double milliseconds(ops::Backend& backend, int steps, F f) {
    backend.synchronize();
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < steps; ++i) f();
    backend.synchronize();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count() / steps;
}

base::Status profile(const std::string& device, const std::string& preset, int batch, int members, const std::string& precision,
                     const std::string& family, const std::string& more) {
    MILLRACE_LET(backend, ops::make_backend(device == "cuda" ? ops::DeviceKind::cuda : ops::DeviceKind::cpu, {}));
    tape::StoreOptions options;
    options.members = members;
    options.precision = precision == "bf16" ? tape::Precision::bf16 : tape::Precision::f32;
    tape::Store store(*backend, options);
    base::Schema schema;
    MILLRACE_LET(keys, models::schema(family, preset));
    schema.add("model", keys);
    const std::string lines = fmt::format("model.name = \"{}\"\nmodel.preset = \"{}\"\n{}", family, preset, more);
    MILLRACE_LET(recipe, base::Recipe::parse(lines, "profile", schema));
    MILLRACE_LET(entry, models::find_family(family));
    const std::unique_ptr<data::BatchSource> data = bench::random_data(entry->data, batch);
    data::BatchSource& source = *data;
    MILLRACE_LET(model, models::make(recipe, source.fields()));
    MILLRACE_TRY(source.declare(store));
    MILLRACE_TRY(model->declare(store));
    MILLRACE_TRY(store.allocate());
    MILLRACE_TRY(source.upload(store));
    optim::OptimizerSettings settings;
    tape::Arena arena(*backend);
    tape::Program program("step", store, train::build_training_step(store, *model, source, settings, {batch, 1, 0}), arena);
    MILLRACE_TRY(arena.allocate());
    MILLRACE_TRY(program.prepare());
    std::vector<std::uint64_t> seeds(static_cast<std::size_t>(members));
    std::iota(seeds.begin(), seeds.end(), 42);
    store.initialize(seeds);
    auto states = store.read_states();
    optim::apply(settings, states);
    store.write_states(states);

    program.run();
    backend->synchronize();
    MILLRACE_TRY(backend->check());
    MILLRACE_TRY(program.capture());
    const int steps = device == "cuda" ? 300 : 20;
    const double eager = milliseconds(*backend, steps, [&] { program.run(); });
    std::vector<double> replays(9);
    for (double& replay : replays) replay = milliseconds(*backend, steps, [&] { program.launch(); });
    std::sort(replays.begin(), replays.end());
    fmt::print("{} {} {} batch {} members {} {}: eager {:.4f} ms, replay {:.4f} ms ({:.4f}-{:.4f}), {} kernels; {}\n", device,
               family, preset, batch, members, precision, eager, replays[4], replays[2], replays[6], program.kernel_count(),
               program.plan().text());
    states = store.read_states();
    fmt::print("  after {} steps: loss {:.4f}, skipped {}, grad norm {:.4f}\n", states[0].step, states[0].loss / states[0].rows,
               states[0].skipped, states[0].grad_norm);
    MILLRACE_LET(times, program.time_kernels(device == "cuda" ? 50 : 5));
    double sum = 0;
    for (const auto& t : times) {
        sum += t.microseconds;
        fmt::print("  {:8.2f} us  {}\n", t.microseconds, t.text);
    }
    fmt::print("  {:8.2f} us  sum of {} kernels alone\n", sum, times.size());
    return base::ok();
}

}  // namespace

int main(int argc, char** argv) {
    auto argument = [&](int i, const char* otherwise) { return std::string(argc > i ? argv[i] : otherwise); };
    std::string more;
    for (int i = 7; i < argc; ++i) more += std::string(argv[i]) + '\n';
    auto status = profile(argument(1, "cpu"), argument(2, "debug"), std::atoi(argument(3, "32").c_str()),
                          std::atoi(argument(4, "1").c_str()), argument(5, "f32"), argument(6, "collective"), more);
    if (status.ok()) return 0;
    fmt::print(stderr, "step_profile: {}\n", status.error().text());
    return status.error().exit_status;
}
