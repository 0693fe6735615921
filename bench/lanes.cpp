// How long a search's epochs take: fills K lanes with trials of different seeds and learning rates, runs epochs, refills all.
//   lanes RECIPE LANES EPOCHS [key=value ...]

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "train/lanes.h"
#include "train/recipe_keys.h"

namespace {

using namespace millrace;

base::Status measure(const std::string& path, int count, int epochs, const std::vector<std::string>& flags) {
    auto last = std::chrono::steady_clock::now();
    const auto seconds = [&] {
        const auto now = std::chrono::steady_clock::now();
        return std::chrono::duration<double>(now - std::exchange(last, now)).count();
    };
    std::vector<base::Recipe> trials;
    for (int i = 0; i < count; ++i) {
        std::vector<std::string> own = flags;
        own.push_back(fmt::format("seed={}", 1 + i));
        own.push_back(fmt::format("optim.lr={}", 1e-4 * (1 + i % 30)));
        MILLRACE_LET(recipe, train::load_recipe(path, {own, {}}));
        trials.push_back(std::move(recipe));
    }
    fmt::print("{} recipes: {:.3f} s\n", count, seconds());
    MILLRACE_LET(lanes, train::Lanes::create(trials.front(), count));
    fmt::print("create: {:.3f} s, {:.1f} MiB, {} captures\n", seconds(), static_cast<double>(lanes->memory_used()) / (1 << 20),
               lanes->captures());
    const auto fill = [&](const char* what) -> base::Status {
        (void)seconds();
        for (int i = 0; i < count; ++i) MILLRACE_TRY(lanes->fill(i, trials[static_cast<std::size_t>(i)]));
        fmt::print("{} {} lanes: {:.3f} s\n", what, count, seconds());
        return base::ok();
    };
    MILLRACE_TRY(fill("fill"));
    for (int epoch = 1; epoch <= epochs; ++epoch) {
        (void)seconds();
        MILLRACE_LET(scores, lanes->run_epoch());
        double best = 0;
        int diverged = 0;
        for (const auto& score : scores) {
            if (const auto found = score->metrics.find("validation_accuracy"); found != score->metrics.end())
                best = std::max(best, found->second);
            diverged += score->diverged ? 1 : 0;
        }
        fmt::print("epoch {}: {:.3f} s, {:.4f} ms a step, best accuracy {:.4f}, {} diverged\n", epoch, seconds(),
                   lanes->step_ms(), best, diverged);
    }
    MILLRACE_LET(slice, lanes->save(0));
    fmt::print("save: {:.4f} s, {:.2f} MiB\n", seconds(), static_cast<double>(slice.bytes.size()) / (1 << 20));
    MILLRACE_TRY(lanes->restore(count - 1, slice));
    fmt::print("restore: {:.4f} s\n", seconds());
    MILLRACE_TRY(lanes->copy(0, count / 2));
    fmt::print("copy: {:.4f} s\n", seconds());
    MILLRACE_TRY(fill("refill"));
    fmt::print("{} captures\n", lanes->captures());
    return base::ok();
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 4) {
        fmt::print(stderr, "lanes RECIPE LANES EPOCHS [key=value ...]\n");
        return 2;
    }
    const auto status = measure(argv[1], std::atoi(argv[2]), std::atoi(argv[3]), {argv + 4, argv + argc});
    if (status.ok()) return 0;
    fmt::print(stderr, "lanes: {}\n", status.error().text());
    return status.error().exit_status;
}
