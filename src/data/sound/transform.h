#pragma once
// Many recordings to mel windows, on all processors.

#include <atomic>
#include <mutex>

#include "base/signal_queue.h"
#include "data/sound/sound_set.h"

namespace millrace::data {

/// Takes SIGINT, SIGTERM and SIGHUP for as long as it lives. Make it before other threads start.
class StopRequests {
public:
    StopRequests();
    /// Whether the process was asked to stop. From any thread; does not wait.
    bool asked();
    /// What ends the command then.
    [[nodiscard]] Error error() const;

private:
    base::SignalQueue queue_;
    std::mutex lock_;
    std::atomic<int> signal_{0};
};

/// Calls body(i) for every i in [0, count) on so many threads (0: one per processor), until it is asked to stop or one fails;
/// gives one of the errors then. `progress` is told how many are done.
Status for_all_items(std::uint32_t count, int threads, StopRequests& stop, const CommandProgress& progress,
                     const std::function<Status(std::uint32_t)>& body);

/// The items of a source that could be read, in their order.
struct TransformedRecordings {
    std::vector<std::uint32_t> items;  ///< [n], positions in the source
    std::vector<std::uint16_t> mels;   ///< [n, kRecordingMels] f16
    std::vector<SkippedFile> skipped;
    std::uint64_t padded = 0, cut = 0;
};
Result<TransformedRecordings> transform_recordings(const SoundSource& source, int threads, StopRequests& stop,
                                                   const CommandProgress& progress);

/// The samples of some items, [items, kSoundSamples]. An item that cannot be read now is an error: it could before.
Result<std::vector<float>> read_samples(const SoundSource& source, std::span<const std::uint32_t> items, int threads,
                                        StopRequests& stop);

}  // namespace millrace::data
