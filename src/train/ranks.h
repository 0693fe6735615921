#pragma once
// The processes of one run: `world` ranks are `groups` of ranks that share out the members, each of `data` ranks that share the
// rows of a step. Every rank runs the whole loop and decides alike, from equal numbers; rank 0 alone writes files.

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "base/recipe.h"
#include "comm/group.h"
#include "comm/watchdog.h"
#include "io/checkpoint.h"
#include "train/listener.h"
#include "train/run_state.h"

namespace millrace::train {

class Ranks {
public:
    /// Every rank calls it: divides the ranks as parallel.members of the recipe says. `world` outlives it. A process alone is one
    /// of one rank, which waits for no other.
    static base::Result<std::unique_ptr<Ranks>> open(comm::Group& world, const base::Recipe& recipe);

    [[nodiscard]] comm::Group& world() const { return world_; }
    [[nodiscard]] bool several() const { return world_.size() > 1; }
    /// Whose ranks share the rows of this rank's members; of one where each rank takes all rows.
    [[nodiscard]] comm::Group& data() const { return *data_; }
    [[nodiscard]] bool shares_rows() const { return data_->size() > 1; }
    [[nodiscard]] bool leads() const { return world_.rank() == 0; }
    [[nodiscard]] int groups() const { return across_->size(); }
    [[nodiscard]] int members() const { return members_; }  ///< of the run
    [[nodiscard]] int own() const { return members_ / groups(); }
    [[nodiscard]] int first() const { return across_->rank() * own(); }
    /// "4: 2 groups of members, 2 ranks each share the rows", for people; empty: one process. `message_share`: of a step.
    [[nodiscard]] std::string text(double message_share) const;
    [[nodiscard]] comm::Watchdog& watchdog() { return watchdog_; }

    /// The part of this rank's members. A checkpoint of one member stays whole.
    [[nodiscard]] base::Result<base::Recipe> own_part(const base::Recipe& recipe) const;
    [[nodiscard]] RunState own_part(const RunState& state) const;
    void keep_own(io::LoadedCheckpoint& checkpoint) const;

    // Every rank calls these, with the same result on all.
    /// `own` of this rank's members as those of all members.
    template <class T>
    base::Result<std::vector<T>> all_members(const std::vector<T>& own) const {
        static_assert(std::is_trivially_copyable_v<T>);
        std::vector<T> all(own.size() * static_cast<std::size_t>(groups()));
        MILLRACE_TRY(across_->all_gather(own.data(), all.data(), own.size() * sizeof(T)));
        return all;
    }
    base::Result<std::vector<Score>> all_scores(std::vector<Score> own) const;
    base::Result<StepSums> all_sums(StepSums own) const;
    /// The weights of all members, on rank 0; elsewhere its own.
    base::Result<std::vector<io::MemberTensors>> all_weights(const std::vector<io::MemberTensors>& own);

    /// `text` is the same everywhere; else an error, as of comm::Group::agree, that names `what`, two hosts and the
    /// first lines that differ.
    base::Status all_equal(const std::string& text, const char* what) const;

private:
    Ranks(comm::Group& world, const base::Recipe& recipe);

    comm::Group& world_;
    std::unique_ptr<comm::Group> data_;
    std::unique_ptr<comm::Group> across_;  ///< one rank of each group of members, those with equal rows
    comm::Watchdog watchdog_;
    const int members_;
    std::vector<std::vector<std::byte>> received_;  ///< of all_weights()
};

}  // namespace millrace::train
