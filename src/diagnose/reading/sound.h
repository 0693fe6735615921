#pragma once
// Timelines come from files, and files may say anything: rules rely on what is checked here.

#include <cstddef>

#include "diagnose/timeline/timeline.h"

namespace millrace::diagnose {

/// Entries are in order, end after they begin, last an hour at most, lie within a span of years, and number only names and stacks
/// that exist. [0] of both is there.
bool is_sound(const Timeline& timeline);

/// The timeline without what is not sound, put in order. `dropped` gets the number of entries left out.
Timeline made_sound(Timeline timeline, std::size_t& dropped);

}  // namespace millrace::diagnose
