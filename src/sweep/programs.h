#pragma once
// Programs with lanes, by structure: built once, kept while there is room for several.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "train/lanes.h"

namespace millrace::sweep {

/// Makes programs: of train::Lanes, or what a test puts in their place.
class LaneFactory {
public:
    virtual ~LaneFactory() = default;
    virtual base::Result<std::unique_ptr<train::Lanes>> create(const base::Recipe& recipe, int lanes) = 0;
    [[nodiscard]] virtual std::string structure(const base::Recipe& recipe) const = 0;
    [[nodiscard]] virtual std::vector<std::string> fusible_keys(const base::Recipe& recipe) const = 0;
    /// Lanes worth trying first where the user leaves it open; fewer are taken where these do not fit.
    [[nodiscard]] virtual int usual_lanes(const base::Recipe& recipe) const = 0;
};

/// train::Lanes.
std::unique_ptr<LaneFactory> training_lanes();

struct Program {
    std::string structure;
    std::unique_ptr<train::Lanes> runner;
    std::vector<std::optional<std::int64_t>> trials;  ///< by lane
    bool is_torn = false;                             ///< an epoch did not come to its end: its lanes hold nothing of use

    [[nodiscard]] std::size_t running() const { return filled().size(); }
    /// The lanes with a trial, and its number.
    [[nodiscard]] std::vector<std::pair<int, std::int64_t>> filled() const;
    /// The lane is empty.
    void clear(int lane);
    /// The first empty lane.
    [[nodiscard]] std::optional<int> free_lane() const { return lane_of(std::nullopt); }
    [[nodiscard]] std::optional<int> lane_of(std::optional<std::int64_t> number) const;
};

class Programs {
public:
    /// `lanes` 0: about as many as usual, such that `most` trials fill them a whole number of times; halved while they do not
    /// fit. `factory` outlives this.
    Programs(LaneFactory& factory, int lanes, int most, const base::Recipe& recipe);

    /// The program of that structure with so many lanes, at most lanes(); built from `recipe` where it is new. Valid until the
    /// next call.
    base::Result<Program*> get(const std::string& structure, const base::Recipe& recipe, int lanes);

    [[nodiscard]] int lanes() const { return lanes_; }
    [[nodiscard]] std::size_t built() const { return built_; }

private:
    void make_room();

    LaneFactory& factory_;
    bool may_shrink_;
    int lanes_;
    std::size_t built_ = 0;
    std::vector<std::unique_ptr<Program>> cached_;  ///< the most recently used last
};

}  // namespace millrace::sweep
