#pragma once
// One way of running a recipe: an engine that is stepped by hand, timed by the device's own clock.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/recipe.h"
#include "base/result.h"
#include "ops/member_state.h"
#include "sense/machine.h"
#include "train/metrics_reader.h"
#include "train/setup.h"

namespace millrace::tune {

/// A key of the recipe and the value that is tried, as --set takes them.
struct Setting {
    std::string key, value;
    friend bool operator==(const Setting&, const Setting&) = default;
};
using Settings = std::vector<Setting>;

/// "train.micro_batch=64 threads=1"; "as it is" without any.
std::string settings_text(const Settings& settings);
/// `settings` with those of `more`, which win.
Settings joined(Settings settings, const Settings& more);
/// The recipe with these settings. What the file and the command line said before is part of it.
base::Result<base::Recipe> with_settings(const base::Recipe& recipe, const Settings& settings);

/// What one window of steps took.
struct Window {
    double seconds_per_sample = 0;  ///< by the device's clock, waits for data included
    double wait_share = 0;          ///< of that time: steps waited for data and the device had nothing else to do
    double seconds = 0;             ///< length of the window
    std::optional<double> joules_per_sample;
};

class Stepper {
public:
    /// Builds the engine. `machine` is asked for the energy of its first GPU; it may be null and is borrowed.
    static base::Result<std::unique_ptr<Stepper>> open(const base::Recipe& recipe, const Settings& settings,
                                                       sense::Source* machine = nullptr);

    /// Runs steps for about `seconds`, at least one; waits for the device.
    base::Result<Window> window(double seconds);
    /// Runs `count` steps and gives what they left, [count][K]; waits for the device.
    base::Result<std::vector<ops::MetricsRow>> steps(std::uint64_t count);
    /// Samples come in another order than that of the recipe's seeds: those that a stepper has just learned from would not stand
    /// for the rest.
    void change_order() {
        std::vector<ops::MemberState> states = engine().store().read_states();
        for (ops::MemberState& state : states) state.seed ^= 0x9e3779b97f4a7c15ull;
        engine().store().write_states(states);
    }
    /// The next step's rows, without a step: how fast the readers are when nothing else limits them.
    base::Status skip_rows();

    [[nodiscard]] train::Engine& engine() { return *setup_.engine; }
    [[nodiscard]] const train::Setup& setup() const { return setup_; }
    /// Of all members, in a full step.
    [[nodiscard]] std::int64_t step_samples() const {
        const train::EpochSteps& epoch = setup_.engine->epoch();
        return (epoch.regular > 0 ? epoch.step : epoch.last).total() * setup_.engine->members();
    }
    [[nodiscard]] std::uint64_t done() const { return step_; }

private:
    explicit Stepper(train::Setup setup, sense::Source* machine);
    void drain() {
        (void)reader_.drain([this](train::RingRows rows) { rows_.insert(rows_.end(), rows.begin(), rows.end()); });
    }
    [[nodiscard]] std::optional<double> joules() const;

    train::Setup setup_;
    sense::Source* machine_;
    train::MetricsReader reader_;
    std::vector<ops::MetricsRow> rows_;  ///< since steps() began
    std::uint64_t step_ = 0;
    std::chrono::nanoseconds starved_{};  ///< since steps() began
    double step_seconds_ = 0;             ///< of the newest window; 0 before the first
};

/// The first member's weights, without its optimizer's state, into every one of `to`, an engine of the same model, precision and
/// optimizer. Waits for both devices.
void copy_weights(train::Engine& from, train::Engine& to);

}  // namespace millrace::tune
