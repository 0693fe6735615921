#pragma once
// The newest saved states of trials: in memory, and beyond a limit in files `folder`/<trial>.slice. A trial that goes on in a
// lane keeps its state here until the next one is saved: an epoch that breaks off leaves nothing of use in the lane. Any slice of
// a trial is one that it passes through, so an older one only costs the epochs since.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "io/file.h"
#include "search/space.h"
#include "train/lanes.h"

namespace millrace::sweep {

/// The configuration of a trial from each step on: one unless population based training changed it.
using History = std::map<std::int64_t, search::Configuration>;

/// "[[0, [0.001, 2]], [3, [0.0012, 2]]]", with all digits, and back. Nothing where it is no such text, or not of `space`.
std::string history_text(const History& history);
std::optional<History> history_of_text(const std::string& text, const search::Space& space);

struct SavedTrial {
    std::int64_t epoch = 0;  ///< completed
    History history;
    train::LaneSlice slice;
};

class SliceStore {
public:
    /// `most_bytes` may stay in memory. The folder is made when it is needed. `space` is borrowed.
    SliceStore(io::Path folder, std::size_t most_bytes, const search::Space& space)
        : folder_(std::move(folder)), most_bytes_(most_bytes), space_(space) {}

    /// Replaces what was there, which stays after an error. `recipe` is the trial's as text, by which get() tells whether a file
    /// is of this trial.
    base::Status put(std::int64_t number, SavedTrial saved, const std::string& recipe);
    /// From memory, or read from its file. Null where there is none; a file that is damaged or of another recipe is a warning
    /// and counts as none.
    [[nodiscard]] std::shared_ptr<const SavedTrial> get(std::int64_t number, const std::string& recipe) const;
    /// The trial has ended.
    void drop(std::int64_t number);
    /// Writes all that is in memory to files.
    base::Status flush();

private:
    struct Entry {
        std::shared_ptr<const SavedTrial> saved;
        std::string recipe;
    };
    [[nodiscard]] io::Path file_of(std::int64_t number) const;
    base::Status write(std::int64_t number, const Entry& entry) const;
    void release(std::int64_t number);  ///< the memory

    io::Path folder_;
    std::size_t most_bytes_;
    const search::Space& space_;
    std::size_t bytes_ = 0;
    std::map<std::int64_t, Entry> entries_;
};

}  // namespace millrace::sweep
