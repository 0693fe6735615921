#pragma once
// What the driver needs of train::Lanes, behind an interface: the tests drive it with functions whose minimum is known.

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/recipe.h"
#include "train/lanes.h"

namespace millrace::sweep {

using LaneScores = std::vector<std::optional<train::LaneScore>>;

/// A program with lanes; every call means what it does in train::Lanes.
class LaneRunner {
public:
    virtual ~LaneRunner() = default;
    virtual base::Status fill(int lane, const base::Recipe& recipe) = 0;
    virtual base::Result<train::LaneSlice> save(int lane) = 0;
    virtual base::Status restore(int lane, const train::LaneSlice& slice) = 0;
    virtual base::Status copy(int from, int to) = 0;
    virtual base::Status set(int lane, const base::Recipe& recipe) = 0;
    virtual void clear(int lane) = 0;
    virtual base::Result<LaneScores> run_epoch(const std::atomic<int>* stop) = 0;
    virtual base::Result<LaneScores> test() = 0;
    virtual base::Result<std::vector<std::string>> metrics() = 0;
    [[nodiscard]] virtual std::int64_t memory_used() const = 0;
};

/// Makes programs.
class LaneFactory {
public:
    virtual ~LaneFactory() = default;
    virtual base::Result<std::unique_ptr<LaneRunner>> create(const base::Recipe& recipe, int lanes) = 0;
    [[nodiscard]] virtual std::string structure(const base::Recipe& recipe) const = 0;
    [[nodiscard]] virtual std::vector<std::string> fusible_keys(const base::Recipe& recipe) const = 0;
    /// Lanes worth trying first where the user leaves it open; fewer are taken where these do not fit.
    [[nodiscard]] virtual int usual_lanes(const base::Recipe& recipe) const = 0;
};

/// train::Lanes.
std::unique_ptr<LaneFactory> training_lanes();

}  // namespace millrace::sweep
