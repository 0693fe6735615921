#include "sweep/programs.h"

#include <algorithm>

#include "base/log.h"
#include "train/run_settings.h"

namespace millrace::sweep {
namespace {

constexpr std::size_t kMostPrograms = 8;
constexpr std::int64_t kMostBytes = std::int64_t{16} << 30;  // of those that are kept and not used

class TrainingFactory final : public LaneFactory {
public:
    base::Result<std::unique_ptr<train::Lanes>> create(const base::Recipe& recipe, int lanes) override {
        return train::Lanes::create(recipe, lanes);
    }
    [[nodiscard]] std::string structure(const base::Recipe& recipe) const override { return train::Lanes::structure(recipe); }
    [[nodiscard]] std::vector<std::string> fusible_keys(const base::Recipe& recipe) const override {
        return train::Lanes::fusible_keys(recipe);
    }
    [[nodiscard]] int usual_lanes(const base::Recipe& recipe) const override {
        // A GPU gains by lanes until its memory is full; the CPU's threads are busy with few.
        constexpr int kOnGpu = 256, kOnCpu = 8;
        const auto device = train::choose_device(recipe.text("device"));
        return device.ok() && *device == ops::DeviceKind::cuda ? kOnGpu : kOnCpu;
    }
};

}  // namespace

std::unique_ptr<LaneFactory> training_lanes() { return std::make_unique<TrainingFactory>(); }

std::vector<std::pair<int, std::int64_t>> Program::filled() const {
    std::vector<std::pair<int, std::int64_t>> out;
    for (std::size_t lane = 0; lane < trials.size(); ++lane)
        if (trials[lane]) out.emplace_back(static_cast<int>(lane), *trials[lane]);
    return out;
}

void Program::clear(int lane) {
    runner->clear(lane);
    trials[static_cast<std::size_t>(lane)].reset();
}

std::optional<int> Program::lane_of(std::optional<std::int64_t> number) const {
    const auto found = std::ranges::find(trials, number);
    return found == trials.end() ? std::nullopt : std::optional(static_cast<int>(found - trials.begin()));
}

Programs::Programs(LaneFactory& factory, int lanes, int most, const base::Recipe& recipe)
    : factory_(factory), may_shrink_(lanes == 0), lanes_(lanes) {
    if (lanes != 0) return;
    const int usual = std::max(1, factory.usual_lanes(recipe));
    const int rounds = std::max(1, (most + usual - 1) / usual);
    lanes_ = std::max(1, (most + rounds - 1) / rounds);
}

base::Result<Program*> Programs::get(const std::string& structure, const base::Recipe& recipe, int lanes) {
    int count = std::min(lanes, lanes_);
    const auto found = std::ranges::find_if(cached_, [&](const auto& program) {
        return program->structure == structure && program->trials.size() == static_cast<std::size_t>(count);
    });
    if (found != cached_.end()) {
        std::rotate(found, found + 1, cached_.end());
        return cached_.back().get();
    }
    make_room();
    auto runner = factory_.create(recipe, count);
    if (!runner.ok() && !cached_.empty()) {  // it may have been their memory that was missing
        cached_.clear();
        runner = factory_.create(recipe, count);
    }
    while (!runner.ok() && may_shrink_ && count > 1) {
        const std::string why = runner.error().text();
        auto smaller = factory_.create(recipe, count / 2);
        if (!smaller.ok() && smaller.error().text() == why) return smaller.error();  // lanes are not what is wrong
        MILLRACE_LOG(info, "{} lanes do not fit, {} are tried", count, count / 2);
        lanes_ = count /= 2;
        runner = std::move(smaller);
    }
    if (!runner.ok()) return runner.error();
    ++built_;
    auto program = std::make_unique<Program>();
    program->structure = structure;
    program->runner = std::move(runner).value();
    program->trials.resize(static_cast<std::size_t>(count));
    cached_.push_back(std::move(program));
    return cached_.back().get();
}

void Programs::make_room() {
    std::int64_t bytes = 0;
    for (const auto& program : cached_) bytes += program->runner->memory_used();
    while (!cached_.empty() && (cached_.size() >= kMostPrograms || bytes > kMostBytes)) {
        bytes -= cached_.front()->runner->memory_used();
        cached_.erase(cached_.begin());
    }
}

}  // namespace millrace::sweep
