#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>

#include "base/half.h"
#include "data/sound/sound_set.h"
#include "io/hdf5.h"
#include "ops/cpu/thread_pool.h"

namespace millrace::data {
namespace {

constexpr std::array kStopSignals{SIGINT, SIGTERM, SIGHUP};
constexpr std::uint32_t kAtOnce = 1 << 16;  // items between two calls of the pool: far below its limit

constexpr std::size_t kRecordingsAtOnce = 256;  // 2.6 MB of mels, 42 MB of samples
constexpr double kLeastDeviation = 1e-3;        // dB: a band that is constant divides by this
constexpr std::array<const char*, kSoundParts> kSplitNames{"training", "validation", "test"};

std::string quoted(const std::string& text) {
    std::string out = "\"";
    for (const char c : text) out += c == '"' ? "\"\"" : std::string(1, c);
    return out + "\"";
}

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

BandStatistics measure_bands(const TransformedRecordings& all, std::span<const std::uint32_t> rows) {
    std::array<double, kMelBands> sum{}, squares{};
    const double count = static_cast<double>(rows.size()) * kLongs * kShorts;
    const auto each = [&](auto&& add) {
        for (const std::uint32_t row : rows)
            for (std::uint32_t i = 0; i < kRecordingMels; ++i)
                add(i % kMelBands, static_cast<double>(base::from_half(all.mels[std::size_t{row} * kRecordingMels + i])));
    };
    each([&](std::uint32_t band, double value) { sum[band] += value; });
    each([&](std::uint32_t band, double value) { squares[band] += (value - sum[band] / count) * (value - sum[band] / count); });
    BandStatistics bands;
    for (std::uint32_t band = 0; band < kMelBands; ++band) {
        bands.mean[band] = static_cast<float>(sum[band] / count);
        bands.deviation[band] = static_cast<float>(std::max(kLeastDeviation, std::sqrt(squares[band] / count)));
    }
    return bands;
}

Status write_sound_part(const Path& path, const SoundSource& source, const TransformedRecordings& all,
                        std::span<const std::uint32_t> rows, std::span<const std::int16_t> labels, const BandStatistics& bands,
                        const SoundSetTexts& texts, const SoundSetOptions& options, StopRequests& stop) {
    MILLRACE_LET(file, io::Hdf5Writer::create(path));
    const std::uint64_t count = rows.size();
    MILLRACE_LET(mel_set, file->add_dataset({"segments_mel", io::ElementType::kF16, {count, kLongs, kShorts, kMelBands, 1}}));
    std::size_t wave_set = 0;
    if (options.waveform)
        MILLRACE_SET(wave_set,
                     file->add_dataset({"segments_waveform", io::ElementType::kF32, {count, kLongs, kShorts, kShortWindow}}));
    MILLRACE_LET(label_set, file->add_dataset({"labels", io::ElementType::kI16, {count}}));
    MILLRACE_LET(mean_set, file->add_dataset({"mel_mean", io::ElementType::kF32, {kMelBands}}));
    MILLRACE_LET(deviation_set, file->add_dataset({"mel_std", io::ElementType::kF32, {kMelBands}}));
    for (std::size_t start = 0; start < rows.size(); start += kRecordingsAtOnce) {
        const auto block = rows.subspan(start, std::min(kRecordingsAtOnce, rows.size() - start));
        std::vector<std::uint16_t> mels;
        std::vector<std::int16_t> block_labels;
        std::vector<std::uint32_t> items;
        for (const std::uint32_t row : block) {
            const auto at = all.mels.begin() + std::ptrdiff_t{row} * kRecordingMels;
            mels.insert(mels.end(), at, at + kRecordingMels);
            block_labels.push_back(labels[row]);
            items.push_back(all.items[row]);
        }
        MILLRACE_TRY(file->append(mel_set, std::as_bytes(std::span(mels))));
        MILLRACE_TRY(file->append(label_set, std::as_bytes(std::span(block_labels))));
        if (options.waveform) {
            MILLRACE_LET(samples, read_samples(source, items, options.threads, stop));
            MILLRACE_TRY(file->append(wave_set, std::as_bytes(std::span(samples))));
        }
        if (stop.asked()) return stop.error();
    }
    MILLRACE_TRY(file->append(mean_set, std::as_bytes(std::span(bands.mean))));
    MILLRACE_TRY(file->append(deviation_set, std::as_bytes(std::span(bands.deviation))));
    for (const auto& [name, text] : texts) MILLRACE_TRY(file->set_attribute(name, text));
    return file->finish();
}

std::string recording_list(const SoundSource& source, const TransformedRecordings& all,
                           std::span<const std::vector<std::uint32_t>, kSoundParts> parts) {
    std::string text = "path,class,split,row,note\n";
    for (std::size_t part = 0; part < kSoundParts; ++part)
        for (std::size_t row = 0; row < parts[part].size(); ++row) {
            const SoundSource::Item& item = source.items[all.items[parts[part][row]]];
            text += fmt::format("{},{},{},{},\n", quoted(item.name), quoted(source.classes[item.label]), kSplitNames[part], row);
        }
    for (const auto* list : {&source.skipped, &all.skipped})
        for (const SkippedFile& each : *list) text += fmt::format("{},,skipped,,{}\n", quoted(each.name), quoted(each.reason));
    return text;
}

}  // namespace millrace::data
