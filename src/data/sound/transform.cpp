#include "data/sound/transform.h"

#include <fmt/format.h>

#include <array>
#include <csignal>

#include "ops/cpu/thread_pool.h"

namespace millrace::data {
namespace {

constexpr std::array kStopSignals{SIGINT, SIGTERM, SIGHUP};
constexpr std::uint32_t kAtOnce = 1 << 16;  // items between two calls of the pool: far below its limit

}  // namespace

StopRequests::StopRequests() : queue_(kStopSignals) {}

bool StopRequests::asked() {
    if (signal_.load(std::memory_order_relaxed) == 0 && lock_.try_lock()) {
        const std::lock_guard guard(lock_, std::adopt_lock);
        if (const auto event = queue_.next(std::chrono::nanoseconds{0})) signal_ = event->number;
    }
    return signal_.load(std::memory_order_relaxed) != 0;
}

Error StopRequests::error() const {
    return Error{fmt::format("interrupted by signal {}; nothing was written", signal_.load()), {}, 128 + signal_.load()};
}

Status for_all_items(std::uint32_t count, int threads, StopRequests& stop, const CommandProgress& progress,
                     const std::function<Status(std::uint32_t)>& body) {
    ops::cpu::ThreadPool pool(threads);
    std::mutex reporting;
    std::uint64_t done = 0;
    std::atomic<bool> over{false};
    Status outcome = base::ok();
    for (std::uint32_t start = 0; start < count && !over; start += kAtOnce) {
        const std::uint32_t now = std::min(kAtOnce, count - start);
        pool.for_each(static_cast<int>(now), [&](int task, int) {
            if (over || stop.asked()) return;
            const Status status = body(start + static_cast<std::uint32_t>(task));
            const std::lock_guard guard(reporting);
            if (!status.ok()) outcome = status;
            over = over || !status.ok();
            if (progress) progress(++done, count);
        });
        if (stop.asked()) return stop.error();
    }
    return outcome;
}

Result<TransformedRecordings> transform_recordings(const SoundSource& source, int threads, StopRequests& stop,
                                                   const CommandProgress& progress) {
    const auto count = static_cast<std::uint32_t>(source.items.size());
    struct Outcome {
        bool read = false;
        Fit fit = Fit::exact;
        std::string reason;
    };
    std::vector<Outcome> outcomes(count);
    TransformedRecordings all;
    all.mels.resize(std::size_t{count} * kRecordingMels);
    MILLRACE_TRY(for_all_items(count, threads, stop, progress, [&](std::uint32_t i) {
        std::vector<float> samples(kSoundSamples);
        const std::span<float, kSoundSamples> recording(samples);
        const auto fit = source.read(i, recording);
        outcomes[i] = {fit.ok(), fit.ok() ? *fit : Fit::exact, fit.ok() ? "" : fit.error().message};
        if (fit.ok())
            mels_of_recording(recording, std::span<std::uint16_t, kRecordingMels>(
                                             all.mels.data() + std::size_t{i} * kRecordingMels, kRecordingMels));
        return base::ok();
    }));
    for (std::uint32_t i = 0; i < count; ++i) {
        if (!outcomes[i].read) {
            all.skipped.push_back({source.items[i].name, outcomes[i].reason});
            continue;
        }
        const auto from = all.mels.begin() + std::ptrdiff_t{i} * kRecordingMels;
        std::copy(from, from + kRecordingMels, all.mels.begin() + std::ssize(all.items) * kRecordingMels);
        all.items.push_back(i);
        all.padded += outcomes[i].fit == Fit::padded ? 1 : 0;
        all.cut += outcomes[i].fit == Fit::cut ? 1 : 0;
    }
    all.mels.resize(all.items.size() * kRecordingMels);
    return all;
}

Result<std::vector<float>> read_samples(const SoundSource& source, std::span<const std::uint32_t> items, int threads,
                                        StopRequests& stop) {
    std::vector<float> samples(items.size() * kSoundSamples);
    const auto read = [&](std::uint32_t i) -> Status {
        float* row = samples.data() + std::size_t{i} * kSoundSamples;
        MILLRACE_TRY(source.read(items[i], std::span<float, kSoundSamples>(row, kSoundSamples)));
        return base::ok();
    };
    MILLRACE_TRY(for_all_items(static_cast<std::uint32_t>(items.size()), threads, stop, {}, read));
    return samples;
}

}  // namespace millrace::data
