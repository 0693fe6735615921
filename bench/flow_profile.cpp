// Where the time of an energy flow step goes: the whole step replayed, then every kernel of one uncaptured pass.
//   flow_profile [cpu|cuda] [debug|experiment|experiment-v2|large-b4] [f32|bf16] [kernels|-] [none|gates|step] [skip|stop]
// skip: steps without flows are left out; stop: early stop too.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <string>

#include "base/philox.h"
#include "data/pairs/resident_pairs.h"
#include "models/energy_flow/energy_flow.h"
#include "ops/optimizer/optimizer.h"
#include "tape/instrument.h"
#include "train/step_program.h"

namespace {

using namespace millrace;

struct Profile {
    models::EnergyFlowConfig config;
    std::int32_t batch = 8;
};

base::Result<Profile> profile_named(const std::string& name) {
    Profile p;
    const auto set = [&](std::int32_t width, std::int32_t height, std::int32_t depth, std::int32_t hidden, std::int32_t layers,
                         std::int32_t batch, std::int32_t steps) {
        p.config.width = width;
        p.config.height = height;
        p.config.depth = depth;
        p.config.hidden = hidden;
        p.config.layers = layers;
        p.config.steps = steps;
        p.batch = batch;
        return p;
    };
    if (name == "debug") return set(20, 20, 10, 256, 2, 8, 0);
    if (name == "experiment") return set(50, 50, 20, 512, 2, 16, 0);
    if (name == "experiment-v2") return set(28, 28, 40, 512, 3, 16, 0);
    if (name == "large-b4") return set(80, 80, 60, 1024, 3, 4, 10);
    return base::Error{fmt::format("no profile '{}'; there are debug, experiment, experiment-v2 and large-b4", name)};
}

/// As many unit vectors as the peer has, without a task behind them.
std::shared_ptr<data::PairSet> random_pairs(std::int32_t width) {
    auto set = std::make_shared<data::PairSet>();
    set->name = "random";
    set->count = 5021;
    set->dimensions = static_cast<std::uint32_t>(width);
    for (std::vector<float>* rows : {&set->inputs, &set->targets}) {
        const std::uint32_t stream = rows == &set->inputs ? 1 : 2;
        rows->resize(std::size_t{set->count} * set->dimensions);
        for (std::size_t i = 0; i < rows->size(); ++i)
            (*rows)[i] = base::random_normal(7, 0, 0, stream, i) / std::sqrt(static_cast<float>(width));
    }
    for (std::uint32_t i = 0; i < set->count; ++i) set->part(data::Part::train).push_back(static_cast<std::int32_t>(i));
    return set;
}

template <class F>
double milliseconds(ops::Backend& backend, int steps, F f) {
    backend.synchronize();
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < steps; ++i) f();
    backend.synchronize();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count() / steps;
}

/// "step 3 gru 1" is "gru 1": the same part of every step.
std::string part_of(const std::string& text) {
    std::string part;
    for (std::size_t at = 0; at < text.size();) {
        if (text.compare(at, 5, "step ") == 0 && at + 5 < text.size() &&
            std::isdigit(static_cast<unsigned char>(text[at + 5])) != 0) {
            at += 5;
            while (at < text.size() && std::isdigit(static_cast<unsigned char>(text[at])) != 0) ++at;
            if (at < text.size() && text[at] == ' ') ++at;
        } else {
            part += text[at++];
        }
    }
    return part;
}

void print_kernels(const std::vector<tape::KernelTime>& times) {
    std::map<std::string, std::pair<double, int>> parts;
    double sum = 0;
    for (const tape::KernelTime& time : times) {
        auto& part = parts[part_of(time.text)];
        part.first += time.microseconds;
        part.second += 1;
        sum += time.microseconds;
    }
    std::vector<std::pair<double, std::string>> lines;
    lines.reserve(parts.size());
    for (const auto& [text, part] : parts) lines.emplace_back(part.first, fmt::format("{} x {}", text, part.second));
    std::sort(lines.rbegin(), lines.rend());
    for (const auto& [microseconds, text] : lines)
        fmt::print("  {:10.1f} us {:5.1f} %  {}\n", microseconds, 100 * microseconds / sum, text);
    fmt::print("  {:10.1f} us  {} kernels one after the other\n", sum, times.size());
}

base::Result<models::Recompute> recompute_named(const std::string& name) {
    using models::Recompute;
    for (const Recompute each : {Recompute::none, Recompute::gates, Recompute::step})
        if (name == models::name_of(each)) return each;
    return base::Error{fmt::format("'{}' cannot be computed again; there are none, gates and step", name)};
}

base::Status profile(const std::string& device, const std::string& name, const std::string& precision, bool kernels,
                     const std::string& again, const std::string& skip) {
    MILLRACE_LET(shape, profile_named(name));
    MILLRACE_LET(recompute, recompute_named(again));
    shape.config.recompute = recompute;
    shape.config.skip_arrived = skip == "skip" || skip == "stop";
    shape.config.early_stop = skip == "stop";
    MILLRACE_LET(backend, ops::make_backend(device == "cuda" ? ops::DeviceKind::cuda : ops::DeviceKind::cpu, {}));
    tape::StoreOptions options;
    options.precision = precision == "bf16" ? tape::Precision::bf16 : tape::Precision::f32;
    tape::Store store(*backend, options);
    models::EnergyFlow model(shape.config);
    auto set = random_pairs(shape.config.embedding);
    data::PairSource source(set);
    MILLRACE_TRY(source.declare(store));
    MILLRACE_TRY(model.declare(store));
    MILLRACE_TRY(store.allocate());
    MILLRACE_TRY(source.upload(store));
    optim::OptimizerSettings settings;
    settings.kind = ops::OptimizerKind::adamw;
    settings.weight_decay = {1e-5};
    settings.clip_norm = 1;
    tape::Arena arena(*backend);
    tape::Program program("step", store, train::build_training_step(store, model, source, settings, {shape.batch, 1, 0}), arena);
    fmt::print("{} {} {}: {} parameters; {}\n", device, name, precision, store.trainable_count(), program.plan().text());
    MILLRACE_TRY(arena.allocate());
    MILLRACE_TRY(program.prepare());
    store.initialize({42});
    auto states = store.read_states();
    optim::apply(settings, states);
    store.write_states(states);
    program.run();
    backend->synchronize();
    MILLRACE_TRY(backend->check());
    MILLRACE_TRY(program.capture());
    const int steps = device == "cuda" ? (name == "debug" ? 50 : 8) : 1;
    std::vector<double> times(7);
    for (double& time : times) time = milliseconds(*backend, steps, [&] { program.launch(); });
    std::sort(times.begin(), times.end());
    const tape::Flops flops = program.flops();
    const auto total = static_cast<double>(flops.total());
    fmt::print("  step {:.3f} ms ({:.3f}-{:.3f}), {:.2f} TFLOP{}\n", times[3], times[1], times[5], total / 1e12,
               flops.conditional == 0
                   ? fmt::format(", {:.1f} TFLOP/s", total / times[3] / 1e9)
                   : fmt::format(", {:.2f} of them while flows are alive", static_cast<double>(flops.conditional) / 1e12));
    states = store.read_states();
    fmt::print("  after {} steps: loss {:.4f}, skipped {}, grad norm {:.4f}\n", states[0].step, states[0].loss / states[0].rows,
               states[0].skipped, states[0].grad_norm);
    if (kernels) {
        MILLRACE_LET(all, tape::time_one_pass(program, *backend));
        print_kernels(all);
    }
    return base::ok();
}

}  // namespace

int main(int argc, char** argv) {
    const auto argument = [&](int i, const char* otherwise) { return std::string(argc > i ? argv[i] : otherwise); };
    const auto status = profile(argument(1, "cpu"), argument(2, "debug"), argument(3, "f32"), argument(4, "") == "kernels",
                                argument(5, "none"), argument(6, ""));
    if (status.ok()) return 0;
    fmt::print(stderr, "flow_profile: {}\n", status.error().text());
    return status.error().exit_status;
}
