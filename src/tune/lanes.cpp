#include "tune/lanes.h"

namespace millrace::tune {

base::Result<Lane*> Lanes::get(const Settings& settings) {
    for (const auto& [of, lane] : open_)
        if (of == settings) return lane.get();
    const Settings all = joined(pinned_, settings);
    auto lane = Lane::open(recipe_, all, machine_);
    if (!lane.ok() && !open_.empty()) {
        open_.clear();
        lane = Lane::open(recipe_, all, machine_);
    }
    if (!lane.ok()) return lane.error();
    open_.emplace_back(settings, std::move(lane).value());
    return open_.back().second.get();
}

void Lanes::pin(const Settings& settings) {
    open_.clear();
    pinned_ = joined(std::move(pinned_), settings);
}

}  // namespace millrace::tune
