#pragma once
// What lanes consist of: an engine, and for each of its members the trial that it carries.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tape/slices.h"
#include "train/lanes.h"
#include "train/metrics_reader.h"
#include "train/setup.h"

namespace millrace::train {

struct Lanes::Impl {
    /// Values that a recipe sets in a parameter of the group kSettings.
    struct Setting {
        tape::ParameterId id = tape::kNoParameter;
        std::vector<std::vector<float>> matrices;
        friend bool operator==(const Setting&, const Setting&) = default;
    };
    struct Lane {
        std::optional<base::Recipe> recipe;  ///< absent: empty
        std::vector<Setting> settings;
        bool partial = false;  ///< an epoch was stopped
    };
    /// A recipe that was checked against the program, and what follows from it.
    struct Trial {
        RunSettings settings;
        std::unique_ptr<tape::Store> declared;  ///< one member, never allocated
    };

    /// A fresh trial that is not on the device yet.
    struct Fresh {
        int lane = 0;
        std::unique_ptr<tape::Store> declared;
        ops::MemberState state;
    };

    Impl(Setup made, base::Recipe shape)
        : setup(std::move(made)),
          structure(std::move(shape)),
          slices(setup.engine->store()),
          reader(store().ring_rows(), store().options().ring_capacity, setup.engine->members()),
          table(static_cast<std::size_t>(setup.engine->members())) {}

    [[nodiscard]] tape::Store& store() const { return setup.engine->store(); }
    Lane& at(int lane) { return table.at(static_cast<std::size_t>(lane)); }
    base::Status check_lane(int lane, bool filled) const;
    /// The same of a filled lane, once all trials are on the device.
    base::Status settle(int lane);
    base::Status settle();
    void forget(int lane) {
        std::erase_if(fresh, [lane](const Fresh& trial) { return trial.lane == lane; });
    }
    base::Result<Trial> trial_of(const base::Recipe& recipe) const;
    static std::vector<Setting> settings_of(const tape::Store& declared);
    void write_settings(int lane, const std::vector<Setting>& now, const std::vector<Setting>& before) const;
    void set_trainable(int lane, bool trainable) const;
    [[nodiscard]] bool any_filled() const;
    base::Result<StepSums> train(const std::atomic<int>* stop, bool& stopped);
    base::Result<std::vector<std::optional<LaneScore>>> score(data::Part part, const std::atomic<int>* stop);
    [[nodiscard]] std::map<std::string, double> training_metrics(const MemberSums& sums) const;

    Setup setup;
    const base::Recipe structure;
    tape::MemberSlices slices;
    std::vector<Fresh> fresh;
    std::vector<std::unique_ptr<ops::Memory>> drawn;  ///< slices whose moments are zero; one stays
    MetricsReader reader;
    std::vector<Lane> table;
    std::uint64_t launched = 0;  ///< steps, equal to pushes into the ring
    double step_ms = 0;
};

// Which recipes may share a program: those that differ in nothing but device data of a member.
/// Keys that take one value per member, and those of the schedule that every member has of its own.
std::vector<std::string> fusible_keys(const base::Recipe& recipe);

/// The recipe with everything that a lane takes, and the number of members, at its default: what is left makes the program.
/// SGD without momentum stays apart, since it has no moments.
base::Recipe structural_part(const base::Recipe& recipe);

/// The recipe with K members of equal values.
base::Result<base::Recipe> with_members(const base::Recipe& recipe, int members);

/// Members [first, first + count) as a recipe of their own: lists of members' values are cut, and seeds listed.
base::Result<base::Recipe> member_part(const base::Recipe& recipe, int first, int count);

/// Refuses what a lane cannot carry: several members, an end by steps or by the first value that is not finite, structures that
/// change, data learned in turns.
base::Status check_trial(const base::Recipe& recipe);

}  // namespace millrace::train
