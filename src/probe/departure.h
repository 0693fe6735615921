#pragma once
// Where `record --finalize-cupti` asks for it, CUPTI leaves the process for good once it is not needed any more: even silent it
// slows each launch down. The probe's thread requests it (Departure); a thread of the program does it between two of its tracked
// calls (tracked_calls.h), in a moment in which no other thread can be inside of CUDA. docs/probe.md says what all this guards
// against.
//
// Memory that CUPTI gives back when it is finalised is kept for good. It goes on to use some of it: in threads that are inside of
// it by then, and when it is used again, even by another client (seen with CUPTI 13.0: docs/performance/doctor.md).

#include <cstdint>

namespace millrace::probe {

/// What the departure needs of the controller.
struct DepartureHost {
    bool (*can_use_cupti)() = nullptr;
    void (*apply_calls)() = nullptr;  ///< is_silent() has changed
    void (*flush)() = nullptr;        ///< CUPTI hands over all that it has
};

/// Used by the probe's thread alone.
class Departure {
public:
    explicit constexpr Departure(const DepartureHost& host) : host_(host) {}

    /// No call shall be told.
    [[nodiscard]] bool is_silent() const { return silent_; }
    /// One step towards it, where that is wanted. `ready`: outside of windows, all of the last one is delivered, and calls are on
    /// or off as they should be. `subscriber`: to be given back right before; null: it is not.
    void look(bool wanted, bool ready, void* subscriber);
    /// Threads that have made no call until now are not known.
    static void note_window_end();
    /// CUPTI is needed after all.
    void withdraw();
    /// CUPTI could not go, and is not asked again.
    void refuse();

private:
    void request(void* subscriber);
    [[nodiscard]] bool must_stay() const;
    void note_gone();

    const DepartureHost host_;
    bool silent_ = false;
    std::uint64_t wanted_since_ = 0, gone_since_ = 0;  ///< when it was first wanted, when it was seen to be gone
};

/// No thread begins to finalise CUPTI any more; true where a thread is about it right now.
bool stop_departure();

/// Finalises CUPTI where that is wished and no other thread can be inside of a call. From tracked calls, when they are over.
void depart_if_wanted();

/// Leads what CUPTI's library frees through the probe; false when that cannot be done. From the probe's own thread.
bool can_keep_memory(void* library);
/// From now on nothing that it frees is given back.
void keep_memory();
/// From now on everything is.
void stop_keeping();

}  // namespace millrace::probe
