#include "data/sound/write_sound_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/half.h"
#include "io/hdf5_writer.h"

namespace millrace::data {
namespace {

constexpr std::size_t kRowsAtOnce = 256;  // 2.6 MB of mels, 42 MB of samples
constexpr double kLeastDeviation = 1e-3;  // dB: a band that is constant divides by this
constexpr std::array<const char*, kSoundParts> kPartNames{"training", "validation", "test"};

std::string quoted(const std::string& text) {
    std::string out = "\"";
    for (const char c : text) out += c == '"' ? "\"\"" : std::string(1, c);
    return out + "\"";
}

template <class T>
io::Bytes bytes_of_values(std::span<const T> values) {
    static_assert(std::endian::native == std::endian::little, "files are little-endian");
    return std::as_bytes(values);
}

}  // namespace

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
    for (std::size_t start = 0; start < rows.size(); start += kRowsAtOnce) {
        const auto block = rows.subspan(start, std::min(kRowsAtOnce, rows.size() - start));
        std::vector<std::uint16_t> mels;
        std::vector<std::int16_t> block_labels;
        std::vector<std::uint32_t> items;
        for (const std::uint32_t row : block) {
            const auto at = all.mels.begin() + std::ptrdiff_t{row} * kRecordingMels;
            mels.insert(mels.end(), at, at + kRecordingMels);
            block_labels.push_back(labels[row]);
            items.push_back(all.items[row]);
        }
        MILLRACE_TRY(file->append(mel_set, bytes_of_values(std::span<const std::uint16_t>(mels))));
        MILLRACE_TRY(file->append(label_set, bytes_of_values(std::span<const std::int16_t>(block_labels))));
        if (options.waveform) {
            MILLRACE_LET(samples, read_samples(source, items, options.threads, stop));
            MILLRACE_TRY(file->append(wave_set, bytes_of_values(std::span<const float>(samples))));
        }
        if (stop.asked()) return stop.error();
    }
    MILLRACE_TRY(file->append(mean_set, bytes_of_values(std::span<const float>(bands.mean))));
    MILLRACE_TRY(file->append(deviation_set, bytes_of_values(std::span<const float>(bands.deviation))));
    MILLRACE_TRY(file->set_attribute("config_json", texts.config));
    MILLRACE_TRY(file->set_attribute("labels_json", texts.labels));
    MILLRACE_TRY(file->set_attribute("label2id_json", texts.label2id));
    MILLRACE_TRY(file->set_attribute("created_at_utc", texts.created));
    return file->finish();
}

std::string recording_list(const SoundSource& source, const TransformedRecordings& all,
                           std::span<const std::vector<std::uint32_t>, kSoundParts> parts) {
    std::string text = "path,class,split,row,note\n";
    for (std::size_t part = 0; part < kSoundParts; ++part)
        for (std::size_t row = 0; row < parts[part].size(); ++row) {
            const SoundSource::Item& item = source.items[all.items[parts[part][row]]];
            text += fmt::format("{},{},{},{},\n", quoted(item.name), quoted(source.classes[item.label]), kPartNames[part], row);
        }
    for (const auto* list : {&source.skipped, &all.skipped})
        for (const SkippedFile& each : *list) text += fmt::format("{},,skipped,,{}\n", quoted(each.name), quoted(each.reason));
    return text;
}

}  // namespace millrace::data
