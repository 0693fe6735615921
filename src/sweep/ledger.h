#pragma once
// The study's trials as this worker knows them: a copy of the database that its own calls keep up to date. What other workers
// write is read from time to time, and before anything that depends on it is written. A call that loses its connection is made
// again; trials that the worker then has without having been told show by is_own().

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <ranges>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "storage/study.h"
#include "sweep/slices.h"

namespace millrace::sweep {

/// Attributes that the driver gives a trial.
inline constexpr const char* kSeedAttribute = "seed";        ///< of its recipe
inline constexpr const char* kRecipeAttribute = "recipe";    ///< its text
inline constexpr const char* kFinalAttribute = "final";      ///< "1": a finalist's rerun, which counts as no trial of the search
inline constexpr const char* kHistoryAttribute = "history";  ///< history_text, where it is longer than one
inline constexpr const char* kMetricsAttribute = "metrics";  ///< JSON: all that was measured in its last epoch
inline constexpr const char* kTestAttribute = "test";        ///< JSON: what the test part says, of a final
inline constexpr const char* kErrorAttribute = "error";      ///< why it could not be built

class Ledger {
public:
    /// Opens the study or creates it, and reads its trials. `clock` outlives the ledger.
    static base::Result<Ledger> open(const std::string& database, storage::StudyDescription description, std::string worker,
                                     const base::Clock& clock);

    /// Trials of the search, and reruns of finalists, in the order of their numbers: samplers and schedulers see the former
    /// alone. Configurations are the newest of their histories.
    [[nodiscard]] const std::vector<search::Trial>& searched() const { return searched_; }
    [[nodiscard]] const std::vector<search::Trial>& finals() const { return finals_; }
    /// All of them, by number.
    [[nodiscard]] auto trials() const {
        return notes_ | std::views::transform([this](const Note& note) -> const search::Trial& { return trial(note); });
    }
    [[nodiscard]] const search::Trial& trial(std::int64_t number) const { return trial(note(number)); }
    /// Of a trial in searched(), or in finals().
    [[nodiscard]] std::size_t position(std::int64_t number) const { return note(number).position; }
    /// Empty where the trial has none of that name.
    [[nodiscard]] std::string attribute(std::int64_t number, const std::string& name) const;
    [[nodiscard]] bool is_final(std::int64_t number) const { return note(number).is_final; }
    /// Trials that no worker runs, or that another one does.
    [[nodiscard]] bool has_foreign() const;
    /// The trial runs, and the study says that it is this worker's.
    [[nodiscard]] bool is_own(std::int64_t number) const;

    /// Reads everything anew.
    base::Status refresh();
    /// The same, unless reading would take more than 1/400 of the time since it was last done.
    base::Status refresh_if_due();

    /// Adds trials that this worker runs. Empty, and refreshed, when another worker has added some since.
    base::Result<std::vector<std::int64_t>> add(std::span<const storage::NewTrial> trials);
    /// Waiting trials and those of workers that are gone, now this worker's.
    base::Result<std::vector<std::int64_t>> claim(std::size_t count, std::chrono::milliseconds grace);
    /// A paused trial is to go on; resume() tells the database.
    void promote(std::int64_t number);
    /// Claims paused trials, in one transaction. Returns those that another worker has, and has refreshed when there are any.
    base::Result<std::vector<std::int64_t>> resume(std::span<const std::int64_t> numbers);
    /// The study has ended: tells the database. Paused trials stay paused here.
    base::Status prune_paused();

    // One transaction each. They return the trials that another worker has taken over.
    base::Result<std::vector<std::int64_t>> report(std::span<const storage::Report> reports);
    base::Result<std::vector<std::int64_t>> finish(std::span<const storage::Outcome> outcomes);
    base::Status give_back(std::span<const std::int64_t> numbers);

    /// Of the newest report; what schedulers compare by.
    void set_violations(std::int64_t number, std::vector<double> violations);
    /// The trial goes on with another configuration.
    void set_history(std::int64_t number, const History& history);

    /// As stored, with the newest configuration of each.
    base::Result<std::vector<storage::StoredTrial>> stored();
    [[nodiscard]] const storage::StudyDescription& description() const { return study_.description(); }

private:
    Ledger(storage::Study study, std::string worker, const base::Clock& clock)
        : study_(std::move(study)), worker_(std::move(worker)), clock_(&clock) {}
    template <class Call>
    auto insist(Call call);
    struct Note {
        storage::Attributes attributes;
        bool is_final;
        bool is_foreign;       ///< unfinished, and not this worker's
        std::size_t position;  ///< in searched_ or finals_
    };
    [[nodiscard]] bool is_mine(const storage::StoredTrial& stored) const {
        return stored.worker == worker_ && !stored.is_waiting;
    }
    void insert(search::Trial trial, storage::Attributes attributes, bool is_foreign);
    [[nodiscard]] const Note& note(std::int64_t number) const { return notes_[static_cast<std::size_t>(number)]; }
    [[nodiscard]] const search::Trial& trial(const Note& of) const { return (of.is_final ? finals_ : searched_)[of.position]; }
    search::Trial& at(std::int64_t number) {
        const Note& of = note(number);
        return (of.is_final ? finals_ : searched_)[of.position];
    }

    storage::Study study_;
    std::string worker_;
    const base::Clock* clock_;
    std::vector<search::Trial> searched_, finals_;
    std::vector<Note> notes_;                                ///< by number
    std::map<std::int64_t, search::Configuration> changed_;  ///< of own trials; the database does not know yet
    std::chrono::nanoseconds last_read_{}, read_cost_{};
};

/// Tells the study every few seconds which trials this worker still has, while its own thread trains an epoch.
class Heartbeat {
public:
    /// `open` gives a connection of its own to the study, as the same worker; it is called when the first beat is due. A beat
    /// that fails is tried again at the next: a trial that is lost shows when it reports.
    Heartbeat(std::function<base::Result<storage::Study>()> open, std::chrono::milliseconds interval);

    /// The trials to beat for from now on.
    void hold(std::vector<std::int64_t> numbers);

private:
    void beat(const std::stop_token& stop);

    std::function<base::Result<storage::Study>()> open_;
    std::chrono::milliseconds interval_;
    std::mutex mutex_;  ///< guards what follows
    std::condition_variable_any ended_;
    std::vector<std::int64_t> numbers_;
    std::jthread thread_;  ///< the last: it uses all of the above
};

}  // namespace millrace::sweep
