#pragma once
#include "diagnose/reading/json_scanner.h"
#include "diagnose/timeline/timeline.h"

namespace millrace::diagnose {

/// The object "millrace" in the head of a trace that we exported: what a timeline has and the trace's events have no place for.
struct OwnSection {
    Time origin = 0;  ///< to be added to the times of events
    bool present = false;
};

/// Takes the value the scanner stands at into the timeline. What makes no sense in it, and sections of later versions, are passed
/// over.
OwnSection scan_own_section(JsonScanner& scanner, Timeline& timeline);

}  // namespace millrace::diagnose
