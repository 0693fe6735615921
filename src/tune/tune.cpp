#include "tune/tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "base/units.h"
#include "tune/candidates.h"
#include "tune/stepper.h"

namespace millrace::tune {
namespace {

// Shares of the time at which the stages end at the latest; what one leaves is for those after it.
constexpr double kSettingsEnd = 0.25, kRowsEnd = 0.38, kLoaderEnd = 0.5, kBatchEnd = 0.65, kNoiseEnd = 0.95;
constexpr std::size_t kBatchRounds = 12;
constexpr double kNoWait = 0.01;
constexpr double kWidestTarget = 2;  ///< an interval beyond says nothing

/// The steppers that are open at a time. As many as fit the memory stay open, so that they can be timed in turns.
class OpenSteppers {
public:
    /// `recipe` and `machine` are borrowed. `pinned` are settings of every stepper unless its own say otherwise: what depends on
    /// the memory that is free, which other steppers take.
    OpenSteppers(const base::Recipe& recipe, Settings pinned, sense::Source* machine)
        : recipe_(recipe), pinned_(std::move(pinned)), machine_(machine) {}

    /// The stepper with these settings, opened where it is not. Where it cannot be, all others are closed and it is tried again.
    base::Result<Stepper*> get(const Settings& settings) {
        for (const auto& [of, stepper] : open_)
            if (of == settings) return stepper.get();
        const Settings all = joined(pinned_, settings);
        auto stepper = Stepper::open(recipe_, all, machine_);
        if (!stepper.ok() && !open_.empty()) {
            open_.clear();
            stepper = Stepper::open(recipe_, all, machine_);
        }
        if (!stepper.ok()) return stepper.error();
        open_.emplace_back(settings, std::move(stepper).value());
        return open_.back().second.get();
    }
    void close_all() { open_.clear(); }
    /// Adds to what all steppers share from now on, and closes those that are open.
    void pin(const Settings& settings) {
        open_.clear();
        pinned_ = joined(std::move(pinned_), settings);
    }
    [[nodiscard]] const Settings& pinned() const { return pinned_; }

private:
    const base::Recipe& recipe_;
    Settings pinned_;
    sense::Source* machine_;
    std::vector<std::pair<Settings, std::unique_ptr<Stepper>>> open_;
};

class Tuner {
public:
    Tuner(const base::Recipe& recipe, const TuneOptions& options, const base::Clock& clock)
        : recipe_(recipe),
          options_(options),
          clock_(clock),
          begin_(clock.now()),
          machine_(sense::open_machine(sense::machine_options())),
          steppers_(recipe, {}, machine_.get()) {}

    base::Result<Report> run() {
        MILLRACE_TRY(look());
        settings_stage();
        rows_stage();
        if (report_.streamed) loader_stage();
        batch_stage();
        noise_stage();
        if (couples_rows() || options_.verify) target_stage();
        choose_batch();
        conclude();
        report_.seconds = seconds_since_begin();
        return std::move(report_);
    }

private:
    [[nodiscard]] double seconds_since_begin() const { return std::chrono::duration<double>(clock_.now() - begin_).count(); }
    [[nodiscard]] std::chrono::nanoseconds moment(double share) const {
        return begin_ + std::chrono::nanoseconds(
                            static_cast<std::int64_t>(1e9 * options_.seconds * std::min(kNoiseEnd, stretch_ * share)));
    }
    void progress(const std::string& what) const {
        if (options_.progress) options_.progress(what, std::min(1.0, seconds_since_begin() / options_.seconds));
    }

    /// Over the rows of a batch: the noise scale says nothing about its steps.
    [[nodiscard]] bool couples_rows() const { return facts_.couples_rows; }

    /// The recipe as it is must run; all that is timed is compared with it.
    base::Status look() {
        progress("setting up");
        MILLRACE_LET(own, steppers_.get({}));
        facts_ = facts_of(recipe_, *own, options_.precision_free);
        report_.recipe = recipe_.place("model.name");
        report_.device = fmt::format("{}, {}", own->setup().device, own->setup().precision);
        const sense::MachineFacts& machine = machine_->facts();
        report_.machine = fmt::format("{}, {} with {} cores", machine.host, machine.cpu_name, machine.cores);
        report_.unit = own->setup().unit;
        report_.streamed = own->setup().data.streamed;
        report_.step_rows = facts_.step_rows();
        // Both depend on the memory that is free, of which other steppers take some.
        steppers_.pin({{"data.mode", report_.streamed ? "stream" : "resident"},
                       {"train.micro_batch", fmt::format("{}", facts_.micro_batch)}});
        return base::ok();
    }

    struct Way {
        Settings settings, otherwise = {};                       ///< the latter where the first cannot be set up; empty: none
        std::int64_t memory = 0, step_samples = 0, members = 1;  ///< once it was set up
        double expected_seconds = 0;                             ///< of a step; 0: not known
    };

    Timer timer_of(Way& way, std::chrono::nanoseconds deadline) {
        return [this, &way, deadline](double seconds) -> base::Result<Window> {
            // The first window of a way takes two steps.
            const double left = std::chrono::duration<double>(deadline - clock_.now()).count();
            if (way.step_samples == 0 && 2 * way.expected_seconds > left)
                return base::Error{fmt::format("a step would take about {:.1f} s, and no time was left", way.expected_seconds)};
            auto stepper = steppers_.get(way.settings);
            if (!stepper.ok() && !way.otherwise.empty()) {
                way.settings = std::exchange(way.otherwise, {});
                stepper = steppers_.get(way.settings);
            }
            if (!stepper.ok()) return stepper.error();
            way.memory = (*stepper)->engine().memory_used();
            way.step_samples = (*stepper)->step_samples();
            way.members = (*stepper)->engine().members();
            return (*stepper)->window(seconds);
        };
    }

    /// Times the ways in turns and adds their rows; the index of the first is that of the recipe.
    RaceResult run_race(const std::string& stage, std::vector<Way>& ways, RaceOptions options) {
        std::vector<Timer> timers;
        for (Way& way : ways) timers.push_back(timer_of(way, options.deadline));
        const RaceResult result = race(timers, options, clock_, [&](std::size_t i) {
            progress(fmt::format("{}: {}", stage, settings_text(ways[i].settings)));
        });
        for (std::size_t i = 0; i < ways.size(); ++i) {
            const Timed& timed = result.ways[i];
            Row row;
            row.stage = stage;
            row.settings = ways[i].settings;
            row.failure = timed.failure;
            row.own = i == 0;
            row.chosen = result.any && options.eliminate && i == result.preferred;
            row.ratio = timed.ratio;
            if (timed.ok()) fill(row, ways[i], timed);
            report_.rows.push_back(std::move(row));
        }
        return result;
    }

    static void fill(Row& row, const Way& way, const Timed& timed) {
        const double per_sample = timed.median(&Window::seconds_per_sample);
        row.samples_per_second = 1 / per_sample;
        row.wait_share = timed.median(&Window::wait_share);
        row.joules_per_sample = timed.joules_per_sample();
        row.memory = way.memory;
        row.step_rows = way.step_samples / way.members;
        row.step_seconds = per_sample * static_cast<double>(way.step_samples);
    }

    void choose(const std::vector<Way>& ways, const RaceResult& result, const char* reason) {
        if (!result.any || result.preferred == 0) return;
        const Settings& chosen = ways[result.preferred].settings;
        report_.changes = joined(report_.changes, chosen);
        const Span& own = result.ways[0].ratio;
        const double gain = own.value / result.ways[result.preferred].ratio.value;
        if (result.ways[0].ok()) report_.speedup *= gain;
        report_.reasons.push_back(
            result.ways[0].ok() ? fmt::format("{}: {}, {:.2f} times the samples per second", settings_text(chosen), reason, gain)
                                : fmt::format("{}: {}", settings_text(chosen), reason));
        steppers_.pin(chosen);
    }

    void settings_stage() {
        std::vector<Way> ways;
        for (Settings& each : machine_candidates(facts_)) ways.push_back({std::move(each)});
        RaceOptions options;
        options.deadline = moment(kSettingsEnd);
        choose(ways, run_race("settings", ways, options), "the fastest of its stage");
        // Where steps are too slow for the noise scale, its time is for the other stages.
        if (least_noise_seconds(facts_, report_.rows.front().step_seconds) > (kNoiseEnd - kBatchEnd) * options_.seconds)
            stretch_ = kNoiseEnd / kBatchEnd;
    }

    void rows_stage() {
        std::vector<Way> ways;
        for (Settings& each : row_candidates(facts_)) ways.push_back({std::move(each)});
        if (ways.size() == 1) return;
        RaceOptions options;
        options.deadline = moment(kRowsEnd);
        const RaceResult result = run_race("rows", ways, options);
        choose(ways, result, "the same rows in a step, other parts");
        if (!result.any || result.preferred == 0) return;
        for (const Setting& each : ways[result.preferred].settings) {
            const std::int64_t value = std::stoll(each.value);
            if (each.key == "train.batch") facts_.batch = value;
            if (each.key == "train.accumulate") facts_.accumulate = value;
            if (each.key == "train.micro_batch") facts_.micro_batch = value;
        }
    }

    /// Readers as many as the speed asks for, then the smallest window without waiting, not below the recipe's.
    void loader_stage() {
        progress("loader: one reader");
        const Row& now = report_.rows.front();
        const double rate = fastest_rate(now.samples_per_second);
        const auto service = reader_seconds(recipe_, steppers_.pinned(), moment(kRowsEnd) - moment(0), clock_);
        if (!service.ok()) {
            report_.rows.push_back({"loader", {{"data.threads", "1"}}, service.error().text()});
            return;
        }
        report_.reader_seconds = *service;
        const auto given = std::min<std::int64_t>(recipe_.integer("data.threads"), facts_.cores);
        std::vector<Way> ways(1);
        for (const std::int64_t threads : reader_threads(rate, *service, facts_.cores))
            if (threads != given) ways.push_back({{{"data.threads", fmt::format("{}", threads)}}});
        RaceOptions options;
        options.deadline = moment((kRowsEnd + kLoaderEnd) / 2);
        const RaceResult readers = run_race("loader", ways, options);
        choose(ways, readers, "readers that keep up");
        if (!readers.any || readers.ways[readers.preferred].median(&Window::wait_share) <= kNoWait) return;
        std::vector<Way> windows(1);
        for (const int times : {2, 4})
            windows.push_back({{{"data.window", base::exact_bytes(recipe_.bytes("data.window") * times)}}});
        options.deadline = moment(kLoaderEnd);
        choose(windows, run_race("loader", windows, options), "steps wait less for data");
    }

    [[nodiscard]] double fastest_rate(double least) const {
        for (const Row& row : report_.rows) least = std::max(least, row.samples_per_second);
        return least;
    }

    void batch_stage() {
        std::vector<Way> ways;
        const std::vector<BatchCandidate> candidates = batch_candidates(facts_);
        for (const BatchCandidate& each : candidates) {
            ways.push_back({each.settings, each.split});
            ways.back().expected_seconds = static_cast<double>(each.rows) / fastest_rate(1e-9);
        }
        RaceOptions options;
        options.deadline = moment(kBatchEnd);
        options.eliminate = false;
        options.most_rounds = kBatchRounds;
        const RaceResult result = run_race("batch", ways, options);
        const std::size_t first = report_.rows.size() - ways.size();
        for (std::size_t i = 0; i < ways.size(); ++i) report_.rows[first + i].step_rows = candidates[i].rows;
        if (!result.ways[0].ok()) return;
        for (std::size_t i = 1; i < ways.size(); ++i)
            if (result.ways[i].ok()) report_.rows[first + i].over_own = time_over(result.ways[i], result.ways[0]);
        Row& own = report_.rows[first];
        own_step_seconds_ = own.step_seconds;
        own.chosen = true;
        steppers_.close_all();
    }

    void noise_stage() {
        if (own_step_seconds_ == 0 || couples_rows()) {
            report_.noise.reason =
                couples_rows()
                    ? "this model computes with several rows of a batch at once, so that another batch changes what it computes"
                    : "no time was left for it";
            return;
        }
        progress("noise scale");
        report_.noise = measure_noise(
            {recipe_, steppers_.pinned(), facts_, own_step_seconds_, moment(kNoiseEnd), [this] { progress("noise scale"); }},
            clock_);
        if (!report_.noise.scale.known) return;
        for (Row& row : report_.rows)
            if (row.stage == "batch" && row.failure.empty())
                set_target(row, time_to_target(report_.noise.scale, static_cast<double>(row.step_rows),
                                               static_cast<double>(report_.step_rows), row.over_own));
    }

    static void set_target(Row& row, const Span& target) {
        row.time_to_target.reset();
        if (target.high <= kWidestTarget * target.low) row.time_to_target = target;
    }

    void target_stage() {
        if (own_step_seconds_ == 0) return;
        progress("targets");
        const auto again = std::chrono::nanoseconds(options_.verify ? static_cast<std::int64_t>(1e9 * options_.seconds) : 0);
        std::vector<BatchCandidate> batches;
        for (const Row& row : report_.rows)
            if (row.stage == "batch" && row.failure.empty()) batches.push_back({row.step_rows, row.settings, {}});
        report_.targets = measure_targets(
            {recipe_, steppers_.pinned(), facts_, own_step_seconds_, moment(kNoiseEnd) + again, [this] { progress("targets"); }},
            batches, clock_);
        for (const TargetBatch& batch : report_.targets->batches)
            for (Row& row : report_.rows)
                if (row.stage == "batch" && row.step_rows == batch.rows && batch.samples)
                    set_target(row, {batch.samples->value * row.over_own.value, batch.samples->low * row.over_own.low,
                                     batch.samples->high * row.over_own.high});
    }

    /// The shortest time to the target, where the batch may change and the difference is beyond doubt.
    void choose_batch() {
        if (!options_.batch_free) return;
        Row *best = nullptr, *own = nullptr;
        for (Row& row : report_.rows) {
            if (row.stage != "batch" || !row.time_to_target) continue;
            if (row.own) own = &row;
            if (best == nullptr || row.time_to_target->value < best->time_to_target->value) best = &row;
        }
        if (best == nullptr || best == own || best->time_to_target->high >= 1) return;
        if (own != nullptr) own->chosen = false;
        best->chosen = true;
        report_.changes = joined(report_.changes, best->settings);
        if (own != nullptr) report_.speedup *= best->samples_per_second / own->samples_per_second;
        report_.reasons.push_back(fmt::format(
            "{}: reaches a loss in {:.2f} ({:.2f} to {:.2f}) of the time; the learning rate is "
            "not changed, a larger batch may need a larger one",
            settings_text(best->settings), best->time_to_target->value, best->time_to_target->low, best->time_to_target->high));
    }

    /// Leaves out what says the same as the recipe's own words.
    void conclude() {
        const auto value_of = [&](const char* key) {
            const auto at = std::ranges::find(report_.changes, key, &Setting::key);
            return at == report_.changes.end() ? recipe_.integer(key) : std::stoll(at->value);
        };
        if (value_of("train.micro_batch") == value_of("train.batch") && recipe_.integer("train.micro_batch") == 0)
            std::erase_if(report_.changes, [](const Setting& each) { return each.key == "train.micro_batch"; });
    }

    const base::Recipe& recipe_;
    const TuneOptions& options_;
    const base::Clock& clock_;
    const std::chrono::nanoseconds begin_;
    std::unique_ptr<sense::Source> machine_;
    OpenSteppers steppers_;
    Facts facts_;
    Report report_;
    double own_step_seconds_ = 0;
    double stretch_ = 1;  ///< of the stages before the noise scale
};

}  // namespace

base::Result<Report> tune(const base::Recipe& recipe, const TuneOptions& options, const base::Clock& clock) {
    return Tuner(recipe, options, clock).run();
}

}  // namespace millrace::tune
