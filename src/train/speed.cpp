#include "train/speed.h"

namespace millrace::train {
namespace {

double seconds_of(SpeedMeter::Time time) { return std::chrono::duration<double>(time).count(); }

SpeedMeter::Speed rate(std::uint64_t steps, std::uint64_t samples, SpeedMeter::Time time) {
    if (time.count() <= 0) return {};
    return {static_cast<double>(samples) / seconds_of(time), static_cast<double>(steps) / seconds_of(time)};
}

}  // namespace

void SpeedMeter::start(Time now) {
    *this = {};
    resume(now);
}

void SpeedMeter::pause(Time now) {
    active_ = active(now);
    paused_ = true;
}

void SpeedMeter::resume(Time now) {
    if (!paused_) return;
    since_ = now;
    paused_ = false;
}

void SpeedMeter::add(std::uint64_t steps, std::uint64_t samples) {
    steps_ += steps;
    samples_ += samples;
}

SpeedMeter::Speed SpeedMeter::recent(Time now) {
    const Time at = active(now);
    const Speed speed = rate(steps_ - mark_steps_, samples_ - mark_samples_, at - mark_);
    mark_ = at;
    mark_steps_ = steps_;
    mark_samples_ = samples_;
    return speed;
}

SpeedMeter::Speed SpeedMeter::average(Time now) const { return rate(steps_, samples_, active(now)); }
double SpeedMeter::seconds(Time now) const { return seconds_of(active(now)); }

}  // namespace millrace::train
