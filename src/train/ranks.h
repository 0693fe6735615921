#pragma once
// The processes of one run: `world` ranks are `groups` of ranks that share out the members, each of `data` ranks that share the
// rows of a step. Every rank runs the whole loop and decides alike, from equal numbers; rank 0 alone writes files.

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "base/rank.h"
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
    /// Of the world; null in a process alone.
    [[nodiscard]] comm::Progress* progress() const { return several() ? &world_.progress() : nullptr; }
    /// Whose ranks share the rows of this rank's members; null where each rank takes all rows.
    [[nodiscard]] comm::Group* data() const { return data_->size() > 1 ? data_.get() : nullptr; }
    [[nodiscard]] base::Rank data_rank() const {
        return {static_cast<std::uint32_t>(data_->rank()), static_cast<std::uint32_t>(data_->size())};
    }
    [[nodiscard]] bool leads() const { return world_.rank() == 0; }
    [[nodiscard]] int groups() const { return groups_; }
    [[nodiscard]] int members() const { return members_; }  ///< of the run
    [[nodiscard]] int own() const { return members_ / groups_; }
    [[nodiscard]] int first() const { return world_.rank() / data_->size() * own(); }
    /// "4: 2 groups of members, 2 ranks each share the rows", for people; empty: one process.
    [[nodiscard]] std::string text() const;
    [[nodiscard]] comm::Watchdog& watchdog() { return *watchdog_; }

    /// The part of this rank's members. A checkpoint of one member stays whole.
    [[nodiscard]] base::Result<base::Recipe> own_part(const base::Recipe& recipe) const;
    [[nodiscard]] RunState own_part(const RunState& state) const;
    void keep_own(io::LoadedCheckpoint& checkpoint) const;

    // Every rank calls these, with the same result on all.
    /// `own` of this rank's members as those of all members.
    template <class T>
    base::Result<std::vector<T>> all_members(const std::vector<T>& own) const {
        static_assert(std::is_trivially_copyable_v<T>);
        if (groups_ == 1) return own;
        std::vector<T> all(own.size() * static_cast<std::size_t>(world_.size()));
        MILLRACE_TRY(world_.all_gather(own.data(), all.data(), own.size() * sizeof(T)));
        std::vector<T> kept;
        const std::size_t each = own.size() * static_cast<std::size_t>(data_->size());
        for (std::size_t at = 0; at < all.size(); at += each)
            kept.insert(kept.end(), all.begin() + static_cast<std::ptrdiff_t>(at),
                        all.begin() + static_cast<std::ptrdiff_t>(at + own.size()));
        return kept;
    }
    base::Result<std::vector<Score>> all_scores(std::vector<Score> own) const;
    base::Result<StepSums> all_sums(StepSums own) const;
    /// The weights of all members, on rank 0; elsewhere its own.
    base::Result<std::vector<io::MemberTensors>> all_weights(const std::vector<io::MemberTensors>& own);

    /// As comm::Group::agree over all ranks. What was refused once needs no other agreement.
    base::Status agree(const base::Status& own);
    template <class T>
    base::Status agree(const base::Result<T>& own) {
        return agree(own.ok() ? base::ok() : base::Status(own.error()));
    }
    [[nodiscard]] bool refused() const { return refused_; }
    /// `text` is the same everywhere; else an error, as of comm::Group::agree, that names `what`, two hosts and the
    /// first lines that differ.
    base::Status all_equal(const std::string& text, const char* what) const;
    /// What rank 0 gives.
    base::Result<std::string> from_first(const std::string& text) const;

private:
    explicit Ranks(comm::Group& world) : world_(world) {}

    comm::Group& world_;
    std::unique_ptr<comm::Group> data_;
    std::unique_ptr<comm::Watchdog> watchdog_;
    int groups_ = 1, members_ = 1;
    bool refused_ = false;
    std::vector<std::vector<std::byte>> received_;  ///< of all_weights()
};

}  // namespace millrace::train
