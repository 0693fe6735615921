// The vocabulary head with its loss and gradients, logits in tiles against logits stored: milliseconds and TFLOP/s of the three
// products. A narrow layer lies below, so that there is a gradient of the input.
//   vocabulary_bench SEQUENCES TOKENS VOCABULARY COLUMNS [cuda|cpu [MEMBERS]]        bf16 on cuda, f32 on cpu

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include "base/philox.h"
#include "nn/text.h"
#include "ops/vocabulary/vocabulary.h"
#include "tape/program.h"

namespace {

using namespace millrace;

struct Shape {
    int sequences, tokens, vocabulary, cols, members;
    [[nodiscard]] int rows() const { return sequences * tokens; }
};

enum class Way { separate, library, tiles };
const char* name_of(Way way) { return way == Way::separate ? "separate" : way == Way::library ? "library" : "tiles"; }

/// Median milliseconds of a step, or of an evaluation, and its loss.
base::Result<std::pair<double, double>> time(ops::Backend& backend, const Shape& shape, Way way, bool training) {
    constexpr int kInputs = 8;
    tape::StoreOptions options;
    options.precision = backend.kind() == ops::DeviceKind::cuda ? tape::Precision::bf16 : tape::Precision::f32;
    options.members = shape.members;
    tape::Store store(backend, options);
    const nn::Dense below(store, {"below"}, {}, nn::linear(kInputs, shape.cols));
    const nn::VocabularyHead head(store, "head", shape.vocabulary, shape.cols);
    const tensor::View windows = store.add_data("windows", tensor::DType::i32, shape.sequences, shape.tokens + 1),
                       lengths = store.add_data("lengths", tensor::DType::i32, shape.sequences, 1),
                       input = store.add_data("input", tape::real_of(options.precision), shape.rows(), kInputs);
    MILLRACE_TRY(store.allocate());
    std::vector<std::uint64_t> seeds(static_cast<std::size_t>(shape.members));
    std::iota(seeds.begin(), seeds.end(), 1);
    store.initialize(seeds);
    tape::BuildOptions build;
    build.training = training;
    tape::Builder builder(store, build);
    const auto of_all = [&](tensor::View view) {  // members read the same data
        view.k = shape.members;
        return view;
    };
    const tape::Value x = below.forward(builder, {of_all(input), false});
    const nn::Sequences targets{of_all(windows).columns(1, shape.tokens), of_all(lengths), 0};
    if (way != Way::separate)
        head.loss(builder, x, targets, 0, {.as_loss = true});
    else
        nn::token_cross_entropy(builder, head.logits(builder, x), targets, 0, {.as_loss = true});
    if (training) builder.backward();
    builder.close_section();
    tape::Arena arena(backend);
    tape::Program program("vocabulary", store, std::move(builder), arena);
    MILLRACE_TRY(arena.allocate());
    MILLRACE_TRY(program.prepare());
    const auto write = [&](const tensor::View& view, auto value) {
        std::vector<double> values(static_cast<std::size_t>(view.count()));
        for (std::size_t i = 0; i < values.size(); ++i) values[i] = value(i);
        program.write(view, values);
    };
    write(windows, [&](std::size_t i) { return base::random_bits(1, 0, 0, 1, i) % static_cast<unsigned>(shape.vocabulary); });
    write(lengths, [&](std::size_t) { return shape.tokens; });
    write(input, [&](std::size_t i) { return base::random_normal(1, 0, 0, 2, i); });
    program.run();
    const double loss = store.read_states()[0].loss / shape.sequences;
    MILLRACE_TRY(backend.check());
    MILLRACE_TRY(program.capture());
    const int steps = program.captured() ? 20 : 1, windows_timed = 9;
    std::vector<double> times;
    for (int i = 0; i < windows_timed; ++i) {
        backend.synchronize();
        const auto begin = std::chrono::steady_clock::now();
        for (int step = 0; step < steps; ++step) program.launch();
        backend.synchronize();
        times.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count() / steps);
    }
    std::sort(times.begin(), times.end());
    return std::pair{times[times.size() / 2], loss};
}

base::Status compare(const Shape& shape, ops::DeviceKind device) {
    MILLRACE_LET(backend, ops::make_backend(device, {.forms = {"vocabulary_loss=tiles"}}));
    MILLRACE_LET(by_library, ops::make_backend(device, {.forms = {"vocabulary_loss=library"}}));
    fmt::print("{} x {} rows x {} columns, vocabulary of {}, on {}\n", shape.members, shape.rows(), shape.cols, shape.vocabulary,
               backend->description());
    for (const bool training : {true, false})
        for (const Way way : {Way::separate, Way::library, Way::tiles}) {
            if (way == Way::library && device == ops::DeviceKind::cpu) continue;
            MILLRACE_LET(found, time(way == Way::library ? *by_library : *backend, shape, way, training));
            const double flops = (training ? 3 : 1) * 2.0 * shape.members * shape.rows() * shape.cols * shape.vocabulary;
            fmt::print("  {:10} {:10} {:9.3f} ms {:8.2f} TFLOP/s   loss {:.5f}\n", training ? "step" : "evaluation", name_of(way),
                       found.first, flops / found.first * 1e-9, found.second);
        }
    return base::ok();
}

}  // namespace

int main(int count, char** words) {
    if (count < 5) {
        fmt::print(stderr, "vocabulary_bench SEQUENCES TOKENS VOCABULARY COLUMNS [cuda|cpu [MEMBERS]]\n");
        return 2;
    }
    const Shape shape{std::atoi(words[1]), std::atoi(words[2]), std::atoi(words[3]), std::atoi(words[4]),
                      count > 6 ? std::atoi(words[6]) : 1};
    const bool cpu = count > 5 && std::string(words[5]) == "cpu";
    const auto done = compare(shape, cpu ? ops::DeviceKind::cpu : ops::DeviceKind::cuda);
    if (!done.ok()) fmt::print(stderr, "{}\n", done.error().text());
    return done.ok() ? 0 : 1;
}
