#include "sweep/lane_runner.h"

#include "train/run_settings.h"

namespace millrace::sweep {
namespace {

class TrainingRunner final : public LaneRunner {
public:
    explicit TrainingRunner(std::unique_ptr<train::Lanes> lanes) : lanes_(std::move(lanes)) {}
    base::Status fill(int lane, const base::Recipe& recipe) override { return lanes_->fill(lane, recipe); }
    base::Result<train::LaneSlice> save(int lane) override { return lanes_->save(lane); }
    base::Status restore(int lane, const train::LaneSlice& slice) override { return lanes_->restore(lane, slice); }
    base::Status copy(int from, int to) override { return lanes_->copy(from, to); }
    base::Status set(int lane, const base::Recipe& recipe) override { return lanes_->set(lane, recipe); }
    void clear(int lane) override { lanes_->clear(lane); }
    base::Result<LaneScores> run_epoch(const std::atomic<int>* stop) override { return lanes_->run_epoch(stop); }
    base::Result<LaneScores> test() override { return lanes_->test(); }
    base::Result<std::vector<std::string>> metrics() override { return lanes_->metrics(); }
    [[nodiscard]] std::int64_t memory_used() const override { return lanes_->memory_used(); }

private:
    std::unique_ptr<train::Lanes> lanes_;
};

class TrainingFactory final : public LaneFactory {
public:
    base::Result<std::unique_ptr<LaneRunner>> create(const base::Recipe& recipe, int lanes) override {
        MILLRACE_LET(made, train::Lanes::create(recipe, lanes));
        return std::unique_ptr<LaneRunner>{std::make_unique<TrainingRunner>(std::move(made))};
    }
    [[nodiscard]] std::string structure(const base::Recipe& recipe) const override { return train::Lanes::structure(recipe); }
    [[nodiscard]] std::vector<std::string> fusible_keys(const base::Recipe& recipe) const override {
        return train::Lanes::fusible_keys(recipe);
    }
    [[nodiscard]] int usual_lanes(const base::Recipe& recipe) const override {
        // A GPU gains by lanes until its memory is full; the CPU's threads are busy
        // with few.
        constexpr int kOnGpu = 256, kOnCpu = 8;
        const auto device = train::choose_device(recipe.text("device"));
        return device.ok() && *device == ops::DeviceKind::cuda ? kOnGpu : kOnCpu;
    }
};

}  // namespace

std::unique_ptr<LaneFactory> training_lanes() { return std::make_unique<TrainingFactory>(); }

}  // namespace millrace::sweep
