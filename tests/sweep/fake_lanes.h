#pragma once
// Lanes that "train" a known function of optim.lr and optim.weight_decay: the validation loss of a trial falls towards its value.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>

#include "storage/database.h"
#include "sweep/finals.h"
#include "sweep/run.h"
#include "sweep/worker.h"
#include "temporary_folder.h"

namespace millrace::sweep {

/// What a fake trial is.
struct FakeState {
    double lr = 0, decay = 0;
    std::uint64_t seed = 0;
    std::uint32_t epoch = 0;
    double weight = 1;  ///< shrinks every epoch by a factor that depends on lr: all that it learned
};

/// What the tests watch and set.
struct FakeLog {
    std::vector<int> created;  ///< lanes of each program
    int fills = 0, restores = 0, copies = 0, tests = 0, epochs = 0;
    std::function<void()> at_epoch;                      ///< called in every epoch; may be empty
    int most_lanes = 1024;                               ///< more do not fit
    std::function<bool(const base::Recipe&)> can_build;  ///< empty: all
    std::atomic<int>* stop = nullptr;                    ///< set after so many epochs
    int stop_after = std::numeric_limits<int>::max();
    bool stops_within = false;                          ///< that epoch counts for nothing
    std::vector<int> busy;                              ///< filled lanes of each epoch
    std::vector<int> stoppable;                         ///< epochs, from 1, that a stop may end early
    int fails_at = std::numeric_limits<int>::max();     ///< epoch from which on the device answers nothing
    std::map<std::uint64_t, std::vector<double>> seen;  ///< lr by seed, at each epoch
};

inline double parameters_of(const base::Recipe& recipe) { return 100.0 * static_cast<double>(recipe.integer("train.batch")); }

class FakeRunner final : public train::Lanes {
public:
    FakeRunner(FakeLog& log, double parameters, int lanes)
        : log_(log), parameters_(parameters), lanes_(static_cast<std::size_t>(lanes)) {}

    base::Status fill(int lane, const base::Recipe& recipe) override {
        ++log_.fills;
        at(lane) = FakeState{recipe.real("optim.lr"), recipe.real("optim.weight_decay"),
                             static_cast<std::uint64_t>(recipe.integer("seed")), 0, 1};
        return base::ok();
    }
    base::Result<train::LaneSlice> save(int lane) override {
        if (log_.epochs >= log_.fails_at) return base::Error{"the device is gone"};
        train::LaneSlice slice;
        slice.bytes.resize(sizeof(FakeState));
        std::memcpy(slice.bytes.data(), &*at(lane), sizeof(FakeState));
        return slice;
    }
    base::Status restore(int lane, const train::LaneSlice& slice) override {
        ++log_.restores;
        if (slice.bytes.size() != sizeof(FakeState)) return base::Error{"another layout"};
        at(lane).emplace();
        std::memcpy(&*at(lane), slice.bytes.data(), sizeof(FakeState));
        return base::ok();
    }
    base::Status copy(int from, int to) override {
        ++log_.copies;
        at(to)->weight = at(from)->weight;
        return base::ok();
    }
    base::Status set(int lane, const base::Recipe& recipe) override {
        at(lane)->lr = recipe.real("optim.lr");
        at(lane)->decay = recipe.real("optim.weight_decay");
        return base::ok();
    }
    void clear(int lane) override { at(lane).reset(); }

    base::Result<Scores> run_epoch(const std::atomic<int>* stop) override {
        if (log_.at_epoch) log_.at_epoch();
        const bool is_last = ++log_.epochs == log_.stop_after;
        if (log_.epochs >= log_.fails_at) return base::Error{"the device is gone"};
        if (stop != nullptr) log_.stoppable.push_back(log_.epochs);
        if (is_last && log_.stop != nullptr) *log_.stop = 2;
        if (is_last && log_.stops_within && stop != nullptr) return Scores{};
        Scores scores;
        int busy = 0;
        for (auto& lane : lanes_) {
            scores.emplace_back();
            if (!lane) continue;
            ++busy;
            ++lane->epoch;
            log_.seen[lane->seed].push_back(lane->lr);
            lane->weight *= 1 - 0.5 * std::exp(-std::abs(std::log10(lane->lr) + 3));
            scores.back() = score(*lane, "validation_");
        }
        log_.busy.push_back(busy);
        return scores;
    }
    base::Result<Scores> test() override {
        ++log_.tests;
        Scores scores;
        for (auto& lane : lanes_) scores.push_back(lane ? std::optional(score(*lane, "test_")) : std::nullopt);
        return scores;
    }
    base::Result<std::vector<std::string>> metrics() override {
        return std::vector<std::string>{"validation_loss", "parameters"};
    }
    [[nodiscard]] std::int64_t memory_used() const override { return 1000; }
    [[nodiscard]] int lanes() const override { return static_cast<int>(lanes_.size()); }
    [[nodiscard]] double step_ms() const override { return 0; }

private:
    std::optional<FakeState>& at(int lane) { return lanes_[static_cast<std::size_t>(lane)]; }
    [[nodiscard]] train::LaneScore score(const FakeState& state, const std::string& part) const {
        // Best at lr = 1e-3 and without decay; the seed is a little noise.
        const double noise = 1e-4 * static_cast<double>(state.seed % 7);
        const double loss = state.weight + state.decay + noise;
        train::LaneScore out;
        out.metrics = {{part + "loss", loss}, {"parameters", parameters_}};
        out.epoch = state.epoch;
        out.diverged = state.lr > 0.5;
        return out;
    }

    FakeLog& log_;
    double parameters_;
    std::vector<std::optional<FakeState>> lanes_;
};

class FakeFactory final : public LaneFactory {
public:
    explicit FakeFactory(FakeLog& log) : log_(log) {}
    base::Result<std::unique_ptr<train::Lanes>> create(const base::Recipe& recipe, int lanes) override {
        if (log_.can_build && !log_.can_build(recipe)) return base::Error{"the device does not answer"};
        if (lanes > log_.most_lanes) return base::Error{"no room for " + std::to_string(lanes) + " lanes"};
        log_.created.push_back(lanes);
        return std::unique_ptr<train::Lanes>{std::make_unique<FakeRunner>(log_, parameters_of(recipe), lanes)};
    }
    [[nodiscard]] std::string structure(const base::Recipe& recipe) const override {
        return std::to_string(recipe.integer("train.batch"));
    }
    [[nodiscard]] std::vector<std::string> fusible_keys(const base::Recipe&) const override {
        return {"optim.lr", "optim.weight_decay", "seed", "optim.name"};
    }
    [[nodiscard]] int usual_lanes(const base::Recipe&) const override { return 8; }

private:
    FakeLog& log_;
};

/// Every epoch takes ten minutes.
class SlowClock final : public base::Clock {
public:
    explicit SlowClock(const FakeLog& log) : log_(log) {}
    [[nodiscard]] std::chrono::nanoseconds now() const override { return std::chrono::minutes{log_.epochs * 10}; }
    [[nodiscard]] std::chrono::system_clock::time_point wall() const override { return std::chrono::system_clock::now(); }

private:
    const FakeLog& log_;
};

/// A folder with a recipe and study files.
class Sweeps : public ::testing::Test {
protected:
    void SetUp() override {
        if (!storage::has_sqlite()) GTEST_SKIP() << "built without SQLite";
        write("recipe.toml", "seed = 100\n[model]\nname = \"collective\"\npreset = \"debug\"\n[train]\nepochs = 9\nbatch = 32\n");
    }
    void write(const std::string& name, const std::string& text) const { std::ofstream(folder_ / name) << text; }

    /// A study file: `study` are lines of [study], `space` lines of [space].
    [[nodiscard]] std::string file(const std::string& study, const std::string& space = kSpace,
                                   const std::string& rest = "") const {
        write("study.toml", "recipe = \"recipe.toml\"\n[study]\nname = \"s\"\n" + study + "\n[space]\n" + space + rest);
        return (folder_ / "study.toml").string();
    }
    [[nodiscard]] StudyFile study(const std::string& lines, const std::string& space = kSpace) const {
        auto loaded = load_study(file(std::string(kObjective) + lines, space), {});
        EXPECT_TRUE(loaded.ok()) << loaded.error().text();
        return std::move(loaded).value();
    }
    [[nodiscard]] std::string refusal(const std::string& path, const std::vector<std::string>& flags = {}) const {
        const auto loaded = load_study(path, flags);
        EXPECT_FALSE(loaded.ok());
        EXPECT_EQ(loaded.error().exit_status, 2);
        return loaded.ok() ? "" : loaded.error().text();
    }

    WorkerOptions options(int lanes, const std::string& worker = "w1") const {
        WorkerOptions out;
        out.database = (folder_ / "sweep.db").string();
        out.slices = folder_ / "slices";
        out.worker = worker;
        out.lanes = lanes;
        out.grace = std::chrono::seconds{3600};
        return out;
    }
    /// Runs a worker to its end.
    std::unique_ptr<Worker> run(const StudyFile& of, WorkerOptions with, const base::Clock& clock = base::SteadyClock::shared()) {
        auto worker = Worker::open(of, std::move(with), factory_, clock);
        EXPECT_TRUE(worker.ok()) << worker.error().text();
        const auto ran = (*worker)->run();
        EXPECT_TRUE(ran.ok()) << ran.error().text();
        return std::move(worker).value();
    }
    static int count(const Worker& worker, search::TrialState state) {
        int found = 0;
        for (const search::Trial& trial : const_cast<Worker&>(worker).ledger().trials()) found += trial.state == state ? 1 : 0;
        return found;
    }

    static constexpr const char* kObjective = "objectives = [{ metric = \"validation_loss\", direction = \"minimize\" }]\n";
    static constexpr const char* kSpace =
        "\"optim.lr\" = { log = [1e-5, 1e-1] }\n\"optim.weight_decay\" = { log = [1e-6, 1e-2], or = 0 }\n";

    /// In memory where that is possible: a database waits for the disk at each transaction.
    static std::filesystem::path quick_folder() {
        std::error_code ignored;
        return std::filesystem::exists("/dev/shm", ignored) ? "/dev/shm" : std::filesystem::temp_directory_path();
    }
    test::TemporaryFolder folder_{quick_folder()};
    FakeLog log_;
    FakeFactory factory_{log_};
};

/// The reports of the one trial with this configuration, trained alone and without a break.
inline std::map<std::int64_t, double> alone(const StudyFile& of, const search::Trial& trial, std::uint64_t seed,
                                            std::int64_t epochs) {
    FakeLog log;
    FakeRunner runner(log, 0, 1);
    EXPECT_TRUE(runner.fill(0, recipe_of(of, trial.configuration, seed)).ok());
    std::map<std::int64_t, double> out;
    for (std::int64_t epoch = 1; epoch <= epochs; ++epoch)
        out[epoch] = runner.run_epoch(nullptr)->front()->metrics.at("validation_loss");
    return out;
}

}  // namespace millrace::sweep
