#pragma once
// A study in a database: its trials, what they reported and who works on them. Any number of processes may have it open; each
// call is one transaction, so a process that dies in the middle leaves nothing half-written. Values are those of search::Trial
// (smaller is better); in the database they have the sign of the metric.
//
// Beside Optuna's own, these attributes are written. Of the study: "study:metric_names", "millrace:space". Of a trial:
// "constraints" and "completed_rung_<n>" as Optuna names them, "millrace:worker", "millrace:paused", and with several objectives
// "millrace:report:<step>", since Optuna keeps one value for each step. A paused trial is RUNNING without a heartbeat: Optuna
// has no such state, would start one that is WAITING from its beginning, and never looks again at one that has ended. Once its
// study has ended it is PRUNED, and still paused for us: a study that is given more trials may take it up.

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "io/file.h"
#include "search/trial.h"
#include "storage/database.h"

namespace millrace::storage {

struct Objective {
    std::string metric;
    bool maximize = false;
    /// The metric as a value to be minimised, and such a value as the metric.
    [[nodiscard]] double signed_value(double value) const { return maximize ? -value : value; }
};

struct StudyDescription {
    std::string name;
    search::Space space;
    std::vector<Objective> objectives;  ///< at least one
};

/// User attributes: texts by name (run directory, recipe, commit).
using Attributes = std::map<std::string, std::string>;

struct NewTrial {
    search::Configuration configuration;  ///< of the study's space
    bool is_waiting = false;              ///< for the worker that claims it; else it is this worker's and runs
    Attributes attributes = {};
};

struct Report {
    int64_t number = 0;  ///< of the trial
    int64_t step = 0;
    search::Objectives values;                   ///< NaN and infinities are kept
    std::optional<int64_t> rung = std::nullopt;  ///< the rung that the trial completed with it
};

/// How a trial leaves its lane: paused, complete, pruned or failed. Complete with a value that is not finite becomes failed.
struct Outcome {
    int64_t number = 0;
    search::TrialState state = search::TrialState::complete;
    search::Objectives values;  ///< one for each objective: of a complete trial, and of a pruned one that has some
    std::vector<double> violations = {};
    Attributes attributes = {};
};

using WallTime = std::chrono::system_clock::time_point;

struct StoredTrial {
    search::Trial trial;      ///< a waiting one is running for samplers
    bool is_waiting = false;  ///< no worker runs it
    bool has_ended = false;   ///< for Optuna: a paused trial, too, once its study has
    std::string worker;       ///< that runs or ran it; empty: none
    Attributes attributes;
    std::map<int64_t, double> rungs;             ///< the first objective where each rung was completed
    std::optional<WallTime> started, completed;  ///< to the microsecond
};

class Study {
public:
    /// Opens the study of that name or creates it. Refuses one with another space or other objectives and names the difference.
    /// `worker` tells this process from all others that work on the study (host, process, a random number). `clock` gives times
    /// and heartbeats and outlives the study.
    static base::Result<Study> open(std::unique_ptr<Database> database, StudyDescription description, std::string worker,
                                    const base::Clock& clock);

    /// Adds trials and returns their numbers, dense from 0 over all workers. With `first`, nothing is added and no number
    /// returned unless the study has exactly that many trials: another worker was faster, and what these were chosen by is out of
    /// date.
    base::Result<std::vector<int64_t>> add(std::span<const NewTrial> trials, std::optional<int64_t> first = std::nullopt);

    /// Claims up to `count` trials, the lowest numbers first: waiting ones, and running ones whose heartbeat is older than
    /// `grace`. No two workers get the same one.
    base::Result<std::vector<int64_t>> claim(size_t count, std::chrono::milliseconds grace);
    /// Claims paused trials; returns those that still were.
    base::Result<std::vector<int64_t>> resume(std::span<const int64_t> numbers);
    /// The study has ended: paused trials become PRUNED, with the values of their last reports.
    base::Status prune_paused();

    // These return the trials that this worker has lost: another one took them over. Nothing is written for them.
    /// Counts as a heartbeat. A second report of a step replaces the first.
    base::Result<std::vector<int64_t>> report(std::span<const Report> reports);
    base::Result<std::vector<int64_t>> finish(std::span<const Outcome> outcomes);
    base::Result<std::vector<int64_t>> heartbeat(std::span<const int64_t> numbers);
    /// Makes running trials waiting ones.
    base::Result<std::vector<int64_t>> give_back(std::span<const int64_t> numbers);

    /// All trials by number. An error where one is none of the study's space, or has values that do not fit its objectives.
    base::Result<std::vector<StoredTrial>> trials();

    /// The call that failed lost its connection and may be made again. What it wrote is gone, or all there: then trials that it
    /// was to add or to claim are this worker's, and those that it was to finish count as lost.
    [[nodiscard]] bool was_cut_off() const { return database_->was_cut_off(); }

    [[nodiscard]] const StudyDescription& description() const { return description_; }

private:
    Study(std::unique_ptr<Database> database, StudyDescription description, std::string worker, const base::Clock& clock)
        : database_(std::move(database)), description_(std::move(description)), worker_(std::move(worker)), clock_(&clock) {}

    base::Status create();
    base::Status compare();
    base::Status insert(int64_t number, const NewTrial& trial);
    base::Status write_outcome(int64_t id, const Outcome& outcome);
    base::Status end_trial(int64_t id, const char* state, const search::Objectives& values);
    base::Status set_attribute(const char* kind, int64_t id, const std::string& key, const std::string& json);
    base::Status set_attributes(int64_t id, const Attributes& attributes);
    base::Status set_heartbeats(const std::set<int64_t>& ids);
    base::Status give_back_one(int64_t id);
    /// Inserts rows, each with another key, or does `update` where there is one: "INSERT INTO insert VALUES ... update".
    base::Status upsert(const std::string& insert, const std::string& update, const std::vector<Row>& rows);
    /// All trials, within a transaction, so that no worker writes between two tables.
    base::Result<std::vector<StoredTrial>> read_trials();
    base::Status take(int64_t id, bool was_waiting);
    base::Status release(int64_t id);
    /// The key of a trial in the database.
    base::Result<int64_t> id_of(int64_t number);
    /// Keys by number, of rows of both.
    base::Result<std::map<int64_t, int64_t>> ids_in(const std::vector<Row>& rows) const;
    /// The same of the trials that run and are this worker's.
    base::Result<std::map<int64_t, int64_t>> owned();
    [[nodiscard]] double signed_value(size_t objective, double value) const {
        return description_.objectives[objective].signed_value(value);
    }
    [[nodiscard]] std::string now() const;
    [[nodiscard]] base::Error damaged(const std::string& what) const;
    /// Runs `write(id, entry)` for each entry whose trial is owned, and returns the numbers of the others.
    template <class Entry, class Write>
    base::Result<std::vector<int64_t>> for_owned(std::span<const Entry> entries, Write write);

    friend class TrialReader;

    std::unique_ptr<Database> database_;
    StudyDescription description_;
    std::string worker_;
    const base::Clock* clock_;
    WallTime::duration ahead_{};  ///< of the server's clock, by which all workers compare heartbeats
    int64_t study_id_ = 0;
    std::map<int64_t, int64_t> ids_;  ///< keys by number; they never change
};

/// "2026-11-17 13:47:25.000123" in UTC, as Optuna 5 writes times, and back.
std::string time_text(WallTime time);
std::optional<WallTime> time_of_text(const std::string& text);

/// A study as the file of Optuna's JournalStorage: one JSON operation for each line. The only form that Optuna 3.1 (Debian 12)
/// reads, too.
/// Replaces `path` as a whole. Times are local and without a zone, which every version of Optuna reads as meant. A paused trial
/// is a running one there, and a pruned one once its study has ended.
base::Status write_journal(const io::Path& path, const StudyDescription& study, std::span<const StoredTrial> trials);

}  // namespace millrace::storage
