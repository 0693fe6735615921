#pragma once
// Tells the study every few seconds which trials this worker still has, while its own thread trains an epoch.

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "storage/study.h"

namespace millrace::sweep {

class Heartbeat {
public:
    /// `open` gives a connection of its own to the study, as the same worker; it is called when the first beat is due. A beat
    /// that fails is tried again at the next: a trial that is lost shows when it reports.
    Heartbeat(std::function<base::Result<storage::Study>()> open, std::chrono::milliseconds interval);

    /// The trials to beat for from now on.
    void hold(std::vector<std::int64_t> numbers);

private:
    void beat(const std::stop_token& stop);

    std::function<base::Result<storage::Study>()> open_;
    std::chrono::milliseconds interval_;
    std::mutex mutex_;  ///< guards what follows
    std::condition_variable_any ended_;
    std::vector<std::int64_t> numbers_;
    std::jthread thread_;  ///< the last: it uses all of the above
};

}  // namespace millrace::sweep
