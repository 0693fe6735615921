#include "tune/stepper.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/clock.h"
#include "tape/slices.h"
#include "train/metrics_reader.h"
#include "train/recipe_keys.h"

namespace millrace::tune {
namespace {

constexpr std::uint64_t kMostSteps = 20000;  ///< of a window
constexpr double kWarmUpSeconds = 0.1;

std::chrono::nanoseconds now() { return base::SteadyClock::shared().now(); }

}  // namespace

std::string settings_text(const Settings& settings) {
    std::string text;
    for (const Setting& each : settings) text += fmt::format("{}{}={}", text.empty() ? "" : " ", each.key, each.value);
    return text.empty() ? "as it is" : text;
}

Settings joined(Settings settings, const Settings& more) {
    for (const Setting& each : more) {
        const auto same = std::ranges::find(settings, each.key, &Setting::key);
        if (same == settings.end())
            settings.push_back(each);
        else
            same->value = each.value;
    }
    return settings;
}

base::Result<base::Recipe> with_settings(const base::Recipe& recipe, const Settings& settings) {
    if (settings.empty()) return recipe;  // keeps its own line numbers
    std::vector<std::string> flags;
    for (const Setting& each : settings) flags.push_back(each.key + "=" + each.value);
    return train::parse_recipe(recipe.to_toml(), "the recipe", {std::move(flags), {}});
}

base::Result<std::unique_ptr<Stepper>> Stepper::open(const base::Recipe& recipe, const Settings& settings,
                                                     sense::Source* machine) {
    MILLRACE_LET(own, with_settings(recipe, settings));
    MILLRACE_LET(setup, train::set_up(own, true));
    return std::unique_ptr<Stepper>(new Stepper(std::move(setup), machine));
}

Stepper::Stepper(train::Setup setup, sense::Source* machine)
    : setup_(std::move(setup)),
      machine_(machine),
      reader_(engine().store().ring_rows(), engine().store().options().ring_capacity, engine().members()) {}

base::Result<std::vector<ops::MetricsRow>> Stepper::steps(std::uint64_t count) {
    const auto each = static_cast<std::uint64_t>(engine().epoch().count());
    const data::StepsDone done = [this]() -> base::Result<std::uint64_t> {
        MILLRACE_TRY(engine().backend().check());
        drain();
        return reader_.consumed();
    };
    rows_.clear();
    starved_ = {};
    for (std::uint64_t i = 0; i < count; ++i) {
        const auto begin = now();
        MILLRACE_TRY(engine().await_rows(step_, done));
        // The host runs ahead of the device: a wait costs nothing while steps are under way.
        if (step_ > 0 && reader_.arrived(step_)) starved_ += now() - begin;
        engine().launch_step(step_++ % each);
        MILLRACE_TRY(train::wait_while(engine().backend(), [this] { return train::is_far_ahead(reader_, step_); }));
        drain();
    }
    engine().backend().synchronize();
    MILLRACE_TRY(engine().backend().check());
    drain();
    return std::move(rows_);
}

base::Status Stepper::skip_rows() {
    const std::uint64_t step = step_;
    MILLRACE_TRY(engine().await_rows(step_++, [step]() -> base::Result<std::uint64_t> { return step; }));
    return base::ok();
}

std::optional<double> Stepper::joules() const {
    if (machine_ == nullptr || setup_.engine->backend().kind() != ops::DeviceKind::cuda) return std::nullopt;
    sense::Sample sample;
    machine_->read(now(), sample);
    return sample.gpus.empty() ? std::nullopt : sample.gpus.front().energy_joules;
}

base::Result<Window> Stepper::window(double seconds) {
    if (step_seconds_ == 0) {  // kernels load, caches fill
        const auto begin = now();
        for (int i = 0; i < 3 || now() - begin < std::chrono::duration<double>(kWarmUpSeconds); ++i) {
            const auto before = now();
            MILLRACE_TRY(steps(1));
            step_seconds_ = std::chrono::duration<double>(now() - before).count();
            if (now() - begin > std::chrono::duration<double>(seconds)) break;
        }
    }
    // One long step by the host's clock: what that adds is nothing beside it.
    const bool one = step_seconds_ > seconds;
    const auto count =
        static_cast<std::uint64_t>(one ? 1 : std::clamp(seconds / step_seconds_, 2.0, static_cast<double>(kMostSteps)));
    const std::optional<double> before = joules();
    const auto begin = now();
    MILLRACE_LET(rows, steps(count));
    Window window;
    window.seconds = std::chrono::duration<double>(now() - begin).count();
    const std::optional<double> after = joules();
    double samples = 0, timed = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        samples += rows[i].rows;
        if (one || i >= static_cast<std::size_t>(engine().members())) timed += rows[i].rows;
    }
    if (!one) window.seconds = 1e-9 * static_cast<double>(rows.back().clock - rows.front().clock);
    if (!(window.seconds > 0) || !(timed > 0)) return base::Error{"its steps were too short for the device's clock"};
    step_seconds_ = window.seconds / static_cast<double>(one ? 1 : count - 1);
    window.seconds_per_sample = window.seconds / timed;
    window.wait_share = std::min(1.0, std::chrono::duration<double>(starved_).count() / window.seconds);
    if (before && after && *after > *before) window.joules_per_sample = (*after - *before) / samples;
    return window;
}

void copy_weights(train::Engine& from, train::Engine& to) {
    const tape::MemberSlices before(from.store()), after(to.store());
    std::vector<std::byte> slice(before.bytes());
    before.read(0, slice.data());
    for (int member = 0; member < to.members(); ++member) after.write_weights(member, slice.data());
}

}  // namespace millrace::tune
