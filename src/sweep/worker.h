#pragma once
// One worker of a study: it takes trials, trains them on the lanes of a program, reports every epoch and does what the scheduler
// says. Any number of workers may have one study; each claims trials that wait or adds new ones.

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "sweep/ledger.h"
#include "sweep/programs.h"
#include "sweep/slices.h"
#include "sweep/study_file.h"

namespace millrace::sweep {

/// Where the time of a worker went, in seconds.
struct Times {
    double total = 0;
    double epochs = 0;    ///< training, validation, test
    double building = 0;  ///< programs
    double moving = 0;    ///< trials into lanes and out of them
    double waiting = 0;   ///< for other workers
    /// Everything else: sampler, scheduler, database, what is printed.
    [[nodiscard]] double bookkeeping() const { return total - epochs - building - moving - waiting; }
};

struct Progress {
    std::int64_t wanted = 0;  ///< trials of the search
    std::int64_t started = 0, complete = 0, running = 0, paused = 0, pruned = 0, failed = 0;
    std::int64_t lanes = 0, busy_lanes = 0;
    std::int64_t trial_epochs = 0;  ///< of this worker
    std::string best;               ///< "trial 17: validation_accuracy 0.9712, optim.lr=0.001"; empty: none yet
    double seconds_left = -1;       ///< below 0: not known
    bool is_final = false;          ///< finalists are trained again
    /// The trial that had to train to its end, since the search ended without a complete one.
    std::optional<std::int64_t> finished = {};
    Times times;
};

/// What a run asks of all its workers.
struct WorkOptions {
    int lanes = 0;                                  ///< 0: by what fits
    std::optional<std::chrono::nanoseconds> time;   ///< of the search; finalists are trained after it
    std::chrono::milliseconds grace{60'000};        ///< trials of workers that were silent for longer are taken over
    const std::atomic<int>* stop = nullptr;         ///< not 0: give all trials back and end; borrowed
    std::function<void(const Progress&)> on_epoch;  ///< may be empty
};

struct WorkerOptions : WorkOptions {
    std::string database;            ///< a SQLite file or the URL of a server
    io::Path slices;                 ///< folder for states of trials
    std::string worker;              ///< tells this process from all others
    storage::Attributes attributes;  ///< of each trial it adds
    std::size_t slice_bytes = std::size_t{4} << 30;
    std::chrono::milliseconds heartbeat{10'000};  ///< how often it tells that it lives, and looks for silent workers
};

class Worker {
public:
    /// `study`, `factory` and `clock` outlive the worker.
    static base::Result<std::unique_ptr<Worker>> open(const StudyFile& study, WorkerOptions options, LaneFactory& factory,
                                                      const base::Clock& clock);

    /// Until nothing is left to do, or until it is asked to stop. In any case no trial is left as this worker's: what had not
    /// ended waits, with its state in a file.
    base::Status run();

    [[nodiscard]] bool was_stopped() const { return was_stopped_; }
    [[nodiscard]] bool is_out_of_time() const { return is_out_of_time_; }
    [[nodiscard]] Ledger& ledger() { return ledger_; }
    [[nodiscard]] Progress progress() const;
    [[nodiscard]] std::size_t programs_built() const { return programs_.built(); }

private:
    /// A trial that is this worker's.
    struct Held {
        base::Recipe recipe;   ///< of its newest configuration
        std::string identity;  ///< by which its slices are known
        std::string structure;
        std::uint64_t seed = 0;
        History history;  ///< so far; of a final the one that it follows
        std::int64_t epoch = 0, until = 0;
        bool is_final = false;
        bool goes_to_end = false;  ///< whatever the scheduler says
        std::map<std::string, double> metrics;
        bool diverged = false;
    };
    Worker(const StudyFile& study, WorkerOptions options, LaneFactory& factory, const base::Clock& clock, Ledger ledger,
           std::unique_ptr<search::Sampler> sampler, std::unique_ptr<search::Scheduler> scheduler);

    base::Status work();
    [[nodiscard]] bool must_stop() const { return options_.stop != nullptr && *options_.stop != 0; }

    // Taking trials.
    base::Status queue_trials();
    base::Status claim();
    void adopt();
    base::Status resume(std::vector<std::int64_t>& promoted);
    base::Result<bool> start_new(std::size_t most);
    base::Result<bool> add_finals();
    base::Result<bool> finish_best();
    void hold(std::int64_t number, bool is_urgent);
    [[nodiscard]] std::uint64_t seed_of_next(const search::Configuration& configuration,
                                             std::span<const storage::NewTrial> before) const;
    storage::NewTrial new_trial(const search::Configuration& configuration, std::span<const storage::NewTrial> before) const;
    void pin_structure(std::vector<search::Configuration>& configurations) const;
    [[nodiscard]] std::size_t queued() const;
    [[nodiscard]] std::size_t queued_here() const;

    // Lanes.
    base::Status fill();
    [[nodiscard]] bool should_switch() const;
    [[nodiscard]] int lanes_for(std::size_t ready, std::size_t available) const;
    base::Status switch_program();
    base::Status place(int lane, std::int64_t number);
    base::Status save_lane(int lane, std::int64_t number);
    base::Status release_lane(int lane, std::int64_t number);
    base::Status release_lanes();
    base::Status refuse(const std::vector<std::int64_t>& numbers, const base::Error& error);
    base::Status check_device(const base::Error& error);

    // An epoch and what follows from it.
    [[nodiscard]] std::int64_t next_step(std::int64_t number) const {
        return scheduler_->next_step(ledger_.searched(), ledger_.position(number));
    }
    base::Status run_epoch();
    base::Status check_metrics();
    base::Result<storage::Report> enter(std::int64_t number, const train::LaneScore& score);
    base::Status apply_decisions();
    base::Status apply_decision(std::int64_t number, std::vector<storage::Outcome>& outcomes);
    base::Status copy_from(std::int64_t number, const search::Decision& decision);
    base::Status follow_history(std::int64_t number);
    base::Status test_finals(std::vector<storage::Outcome>& outcomes);
    void forget(std::int64_t number);
    base::Status leave();

    template <class Call>
    auto timed(double& sum, Call call) {
        const auto before = clock_.now();
        auto result = call();
        sum += std::chrono::duration<double>(clock_.now() - before).count();
        return result;
    }

    const StudyFile& study_;
    WorkerOptions options_;
    LaneFactory& factory_;
    const base::Clock& clock_;
    std::chrono::nanoseconds began_;
    Ledger ledger_;
    std::unique_ptr<search::Sampler> sampler_;
    std::unique_ptr<search::Scheduler> scheduler_;
    std::vector<std::size_t> structural_;  ///< parameters that need a program of their own
    SliceStore slices_;
    Programs programs_;
    Heartbeat heartbeat_;

    std::map<std::int64_t, Held> held_;
    std::map<std::string, std::deque<std::int64_t>> queues_;  ///< by structure: held and not in a lane
    Program* program_ = nullptr;
    search::Configuration program_configuration_;  ///< of a trial of this program
    std::size_t started_here_ = 0;                 ///< new trials since the program was taken up
    bool has_checked_metrics_ = false, sampler_is_done_ = false, was_stopped_ = false, is_out_of_time_ = false;
    std::int64_t trial_epochs_ = 0;
    double last_epoch_ = 0;  ///< seconds
    std::chrono::nanoseconds last_claim_{};
    bool is_training_finals_ = false;
    std::optional<std::int64_t> finished_;
    mutable Times times_;
};

}  // namespace millrace::sweep
