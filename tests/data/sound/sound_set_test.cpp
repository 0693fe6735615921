#include "data/sound/sound_set.h"
#include "base/json.h"

#include <gtest/gtest.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <fstream>

#include "base/half.h"
#include "data/makers.h"
#include "data/recordings/recording_set.h"
#include "io/hdf5.h"
#include "io/sound_file.h"
#include "temporary_folder.h"

namespace millrace::data {
namespace {

namespace fs = std::filesystem;

std::vector<float> sound(double hertz, double seconds, std::uint32_t rate = kSoundRate) {
    std::vector<float> samples(static_cast<std::size_t>(seconds * rate));
    for (std::size_t n = 0; n < samples.size(); ++n)
        samples[n] = static_cast<float>(0.5 * std::sin(2 * 3.14159265358979 * hertz * static_cast<double>(n) / rate));
    return samples;
}

class SoundSet : public ::testing::Test {
protected:
    void SetUp() override {
        if (!io::can_read_sound() || !io::have_hdf5()) GTEST_SKIP() << "this build has no libsndfile or no HDF5";
    }
    void put(const std::string& name, const std::vector<float>& samples, std::uint32_t rate = kSoundRate) const {
        fs::create_directories((root() / name).parent_path());
        ASSERT_TRUE(io::write_wav(root() / name, samples, rate, io::WavFormat::f32).ok());
    }
    void put_bytes(const std::string& name, const std::string& bytes) const {
        fs::create_directories((root() / name).parent_path());
        std::ofstream(root() / name, std::ios::binary) << bytes;
    }
    /// `count` recordings of each of two classes.
    void put_classes(int count) const {
        for (int i = 0; i < count; ++i) {
            put("LEAK/" + std::to_string(i) + ".wav", sound(400 + 10 * i, 10));
            put("NORMAL/" + std::to_string(i) + ".wav", sound(50 + i, 10));
        }
    }
    Result<SoundSetReport> make(const SoundSetOptions& options = {}) const {
        MILLRACE_LET(source, sound_source(root()));
        return make_sound_set(out(), source, options);
    }
    void expect_refusal(const std::string& words, const SoundSetOptions& options = {}) const {
        const auto made = make(options);
        ASSERT_FALSE(made.ok()) << words;
        EXPECT_NE(made.error().text().find(words), std::string::npos) << made.error().text();
        EXPECT_EQ(made.error().exit_status, 2);
        EXPECT_FALSE(fs::exists(out()));
    }
    std::string list() const { return io::read_text(out() / kRecordingList).value(); }
    Path root() const { return folder_ / "in"; }
    Path out() const { return folder_ / "out"; }
    test::TemporaryFolder folder_;
};

TEST_F(SoundSet, WritesThreePartsAndLeavesThemAlone) {
    put_classes(10);
    const auto made = make();
    ASSERT_TRUE(made.ok()) << made.error().text();
    EXPECT_EQ(made->counts, (std::array<std::uint64_t, 3>{14, 4, 2}));
    EXPECT_EQ(made->classes, (std::vector<std::string>{"LEAK", "NORMAL"}));
    const auto before = fs::last_write_time(out() / kRecordingFiles[0]);
    const auto again = make();
    ASSERT_TRUE(again.ok()) << again.error().text();
    EXPECT_EQ(again->outcome, MakeOutcome::kAlreadyThere);
    EXPECT_EQ(again->counts, made->counts);
    EXPECT_EQ(fs::last_write_time(out() / kRecordingFiles[0]), before);
    EXPECT_EQ(std::distance(fs::directory_iterator(out()), fs::directory_iterator{}), 5);

    EXPECT_NE(make({.seed = 43}).error().text().find("dataset.json: belongs to a data set"), std::string::npos);
    put("LEAK/new.wav", sound(300, 10));
    EXPECT_FALSE(make().ok());
    fs::remove(out() / kDescription);
    EXPECT_NE(make().error().text().find(kRecordingFiles[0]), std::string::npos);
    EXPECT_EQ(fs::last_write_time(out() / kRecordingFiles[0]), before);
}

TEST_F(SoundSet, DescriptionsOfOtherTypesAreAnotherSets) {
    put_classes(5);
    ASSERT_TRUE(make().ok());
    const auto whole = base::ordered_json_or_throw(io::read_text(out() / kDescription).value());
    const nlohmann::ordered_json wrong{{"classes", 3}, {"recordings", "many"}, {"files", 1}, {"made", 7}};
    for (const auto& [key, value] : wrong.items()) {
        auto changed = whole;
        changed[key] = value;
        ASSERT_TRUE(io::write_atomically(out() / kDescription, base::json_text(changed)).ok());
        const auto again = make();
        ASSERT_FALSE(again.ok()) << key;
        EXPECT_NE(again.error().text().find("dataset.json: belongs to a data set"), std::string::npos) << again.error().text();
    }
}

TEST_F(SoundSet, SetThatWasBeingPublishedIsFinished) {
    put_classes(5);
    const auto made = make();
    ASSERT_TRUE(made.ok()) << made.error().text();
    fs::create_directory(out() / ".publishing");
    for (const char* name : {kRecordingFiles[2], kDescription}) fs::rename(out() / name, out() / ".publishing" / name);
    const auto again = make();
    ASSERT_TRUE(again.ok()) << again.error().text();
    EXPECT_EQ(again->outcome, MakeOutcome::kAlreadyThere);
    EXPECT_EQ(again->counts, made->counts);
    EXPECT_EQ(std::distance(fs::directory_iterator(out()), fs::directory_iterator{}), 5);
}

TEST_F(SoundSet, LinksTakeNoRecordingFromItsClass) {
    put_classes(5);
    fs::create_directory_symlink("../NORMAL", root() / "LEAK/all of normal");
    fs::create_directory_symlink("..", root() / "LEAK/loop");
    fs::create_directory_symlink("LEAK", root() / "ANOTHER");
    put_bytes("lost.wav", "in no class");
    const auto source = sound_source(root());
    ASSERT_TRUE(source.ok()) << source.error().text();
    EXPECT_EQ(source->classes, (std::vector<std::string>{"LEAK", "NORMAL"}));
    ASSERT_EQ(source->items.size(), 10u);
    for (const SoundSource::Item& item : source->items)
        EXPECT_TRUE(item.name.starts_with(source->classes[item.label] + "/")) << item.name;
    std::vector<std::string> skipped;
    for (const SkippedFile& entry : source->skipped) skipped.push_back(entry.name + " " + entry.reason);
    EXPECT_EQ(skipped,
              (std::vector<std::string>{"lost.wav lies in no class folder", "ANOTHER is the same folder as LEAK",
                                        "LEAK/all of normal is the same folder as NORMAL", "LEAK/loop is the same folder as ."}));
}

TEST_F(SoundSet, RowsDoNotDependOnTheNumberOfThreads) {
    put_classes(6);
    put("LEAK/other.wav", sound(500, 3, 44'100), 44'100);
    put("NORMAL/long.wav", sound(60, 12, 8000), 8000);
    const auto first = make({.waveform = true, .threads = 1});
    ASSERT_TRUE(first.ok()) << first.error().text();
    EXPECT_EQ(first->padded, 1u);
    EXPECT_EQ(first->cut, 1u);
    const std::string listed = list();
    fs::rename(out(), folder_ / "first");
    ASSERT_TRUE(make({.waveform = true, .threads = 7}).ok());
    EXPECT_EQ(list(), listed);
    const auto bytes_of = [](const Path& path, const char* name) {
        const auto dataset = (*io::Hdf5File::open(path))->dataset(name);
        std::vector<std::byte> bytes((*dataset)->rows() * (*dataset)->row_bytes());
        EXPECT_TRUE((*dataset)->read_rows(0, (*dataset)->rows(), bytes).ok()) << name;
        return bytes;
    };
    for (const char* file : kRecordingFiles)
        for (const char* name : {"segments_mel", "segments_waveform", "labels", "mel_mean", "mel_std"})
            EXPECT_TRUE(bytes_of(out() / file, name) == bytes_of(folder_ / "first" / file, name)) << file << " " << name;
}

TEST_F(SoundSet, FilesHoldWhatTheyShould) {
    for (int i = 0; i < 10; ++i) {
        put("LEAK/" + std::to_string(i) + ".wav", sound(400 + 10 * i, 10));
        put("CRACK/" + std::to_string(i) + ".wav", sound(1000, 2));
        put("NORMAL/" + std::to_string(i) + ".wav", sound(50 + i, 10));
    }
    const auto source = sound_source(root());
    ASSERT_TRUE(source.ok());
    ASSERT_TRUE(make({.positive = "LEAK", .waveform = true}).ok());
    std::vector<double> sums(kMelBands), squares(kMelBands);
    for (std::size_t part = 0; part < kSoundParts; ++part) {
        const auto file = io::Hdf5File::open(out() / kRecordingFiles[part]);
        ASSERT_TRUE(file.ok()) << file.error().text();
        const std::uint64_t rows = part == 0 ? 21 : part == 1 ? 6 : 3;
        using Dims = std::vector<std::uint64_t>;
        EXPECT_EQ((*file)->find("segments_mel")->dims, (Dims{rows, 40, 2, 64, 1}));
        EXPECT_EQ((*file)->find("segments_mel")->type, io::ElementType::kF16);
        EXPECT_EQ((*file)->find("segments_waveform")->dims, (Dims{rows, 40, 2, 512}));
        EXPECT_EQ((*file)->find("segments_waveform")->type, io::ElementType::kF32);
        EXPECT_EQ((*file)->find("labels")->dims, Dims{rows});
        EXPECT_EQ((*file)->find("labels")->type, io::ElementType::kI16);
        EXPECT_EQ((*file)->attribute("labels_json").value(), R"(["NOLEAK","LEAK"])");
        EXPECT_EQ((*file)->attribute("label2id_json").value(), R"({"NOLEAK":0,"LEAK":1})");
        EXPECT_EQ((*file)->attribute("created_at_utc").value().size(), 20u);
        const auto config = base::json_or_throw((*file)->attribute("config_json").value());
        for (const auto& [key, value] : std::map<std::string, double>{{"sample_rate", 4096},
                                                                      {"duration_sec", 10},
                                                                      {"long_window", 1024},
                                                                      {"short_window", 512},
                                                                      {"n_mels", 64},
                                                                      {"n_fft", 512},
                                                                      {"hop_length", 128},
                                                                      {"power", 1},
                                                                      {"long_scale_sec", 0.25},
                                                                      {"short_points", 512},
                                                                      {"center", 0}})
            EXPECT_EQ(config[key].is_boolean() ? static_cast<double>(config[key].get<bool>()) : config[key].get<double>(), value)
                << key;

        std::vector<std::uint16_t> mels(rows * kRecordingMels);
        std::vector<float> samples(rows * kSoundSamples), mean(kMelBands), deviation(kMelBands);
        std::vector<std::int16_t> labels(rows);
        const auto read = [&](const char* name, auto& into, std::uint64_t count) {
            ASSERT_TRUE((*(*file)->dataset(name))->read_rows(0, count, std::as_writable_bytes(std::span(into))).ok()) << name;
        };
        read("segments_mel", mels, rows);
        read("segments_waveform", samples, rows);
        read("labels", labels, rows);
        read("mel_mean", mean, kMelBands);
        read("mel_std", deviation, kMelBands);
        std::vector<std::uint16_t> expected(kRecordingMels);
        for (std::uint64_t row = 0; row < rows; ++row) {
            mels_of_recording(std::span<const float, kSoundSamples>(samples.data() + row * kSoundSamples, kSoundSamples),
                              std::span<std::uint16_t, kRecordingMels>(expected));
            EXPECT_TRUE(
                std::equal(expected.begin(), expected.end(), mels.begin() + static_cast<std::ptrdiff_t>(row * kRecordingMels)));
            const std::string line = labels[row] == 1 ? "\"LEAK\"" : "\"";
            const std::string part_name = part == 0 ? "training" : part == 1 ? "validation" : "test";
            EXPECT_NE(list().find(line + "," + part_name + "," + std::to_string(row) + ","), std::string::npos) << row;
        }
        EXPECT_EQ(std::count(labels.begin(), labels.end(), 1), static_cast<std::ptrdiff_t>(rows / 3));
        if (part == 0) {
            const double count = static_cast<double>(rows) * kLongs * kShorts;
            for (std::size_t i = 0; i < mels.size(); ++i)
                sums[i % kMelBands] += static_cast<double>(base::from_half(mels[i])) / count;
            for (std::size_t i = 0; i < mels.size(); ++i)
                squares[i % kMelBands] +=
                    std::pow(static_cast<double>(base::from_half(mels[i])) - sums[i % kMelBands], 2) / count;
        }
        for (std::size_t band = 0; band < kMelBands; ++band) {
            EXPECT_NEAR(mean[band], sums[band], 1e-4);
            EXPECT_NEAR(deviation[band], std::sqrt(squares[band]), 1e-4);
        }
    }
}

TEST_F(SoundSet, UnreadableRecordingsAreListedAndSkipped) {
    put_classes(5);
    std::vector<float> broken = sound(100, 1);
    put("LEAK/nan.wav", broken);
    {
        std::fstream file(root() / "LEAK/nan.wav", std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(44 + 4 * 17);
        file.write("\xff\xff\xff\xff", 4);
    }
    put_bytes("LEAK/empty.wav", "");
    put_bytes("LEAK/text.wav", "this is no sound at all, but a text");
    put_bytes("NORMAL/cut.WAV", io::read_text(root() / "NORMAL/0.wav").value().substr(0, 20'000));
    put_bytes("NORMAL/notes.txt", "ignored");
    put_bytes("NORMAL/._0.wav", "ignored");
    put_bytes("lost.wav", "x");
    fs::create_symlink("nowhere", root() / "LEAK/dangling.wav");
    fs::create_symlink("../NORMAL/0.wav", root() / "LEAK/zz twice.wav");
    fs::create_directory_symlink("..", root() / "NORMAL/loop");
    const auto made = make();
    ASSERT_TRUE(made.ok()) << made.error().text();
    EXPECT_EQ(made->counts[0] + made->counts[1] + made->counts[2], 10u);
    const std::string listed = list();
    for (const char* line :
         {"\"LEAK/nan.wav\",,skipped,,\"sample 17 is NaN", "\"LEAK/empty.wav\",,skipped,,\"is empty: 0 bytes",
          "\"LEAK/text.wav\",,skipped,,\"is neither WAV nor FLAC", "\"NORMAL/cut.WAV\",,skipped,,\"the header claims",
          "\"lost.wav\",,skipped,,\"lies in no class folder", "\"LEAK/dangling.wav\",,skipped,,\"leads to nothing",
          "is the same file as ", "is the same folder as "})
        EXPECT_NE(listed.find(line), std::string::npos) << line << "\n" << listed;
    EXPECT_EQ(listed.find("notes.txt"), std::string::npos);
    EXPECT_EQ(listed.find("._0"), std::string::npos);
}

TEST_F(SoundSet, NamesMayHoldAnything) {
    for (int i = 0; i < 4; ++i) {
        put("Leck groß/a \"b\", " + std::to_string(i) + ".wav", sound(300, 1));
        put("漏水/deep/er/" + std::to_string(i) + ".wav", sound(90, 1));
    }
    const auto made = make({.positive = "漏水"});
    ASSERT_TRUE(made.ok()) << made.error().text();
    EXPECT_EQ(made->classes, (std::vector<std::string>{"NO漏水", "漏水"}));
    EXPECT_NE(list().find("\"Leck groß/a \"\"b\"\", 0.wav\",\"Leck groß\","), std::string::npos) << list();
    EXPECT_NE(list().find("\"漏水/deep/er/0.wav\""), std::string::npos) << list();
}

TEST_F(SoundSet, TooFewRecordings) {
    expect_refusal("cannot list the folder");
    fs::create_directories(root() / "LEAK");
    expect_refusal("holds no recording");
    put("LEAK/a.wav", sound(300, 1));
    expect_refusal("one class, LEAK");
    put("NORMAL/a.wav", sound(300, 1));
    expect_refusal("VALIDATION_DATASET.H5 would be empty");
    expect_refusal("--positive LEK is no class (did you mean LEAK?)", {.positive = "LEK"});
    expect_refusal("--threads", {.threads = 5000});
    put_bytes("CRACK/a.wav", "no sound");
    expect_refusal("no recording of class CRACK could be read; CRACK/a.wav: is neither");
    fs::remove_all(root() / "CRACK");
    const auto made = make({.shares = {1, 0, 0}});
    ASSERT_TRUE(made.ok()) << made.error().text();
    EXPECT_FALSE(fs::exists(out() / kRecordingFiles[1]));
    fs::remove_all(out());
    for (const char* name : {"LEAK/b.wav", "LEAK/c.wav"}) put(name, sound(300, 1));
    const auto three = make();  // NORMAL's one recording trains
    ASSERT_TRUE(three.ok()) << three.error().text();
    EXPECT_EQ(three->counts, (std::array<std::uint64_t, 3>{2, 1, 1}));
}

TEST_F(SoundSet, NothingIsWrittenBesideAFullNameOrABuildThatRuns) {
    put_classes(5);
    fs::create_directories(out());
    std::ofstream(out() / kRecordingFiles[2]) << "somebody else's";
    const auto made = make();
    ASSERT_FALSE(made.ok());
    EXPECT_NE(made.error().text().find(kRecordingFiles[2]), std::string::npos);
    EXPECT_EQ(std::distance(fs::directory_iterator(out()), fs::directory_iterator{}), 1);
}

TEST_F(SoundSet, AFolderThatMayNotBeReadIsListed) {
    if (::geteuid() == 0) GTEST_SKIP() << "root may read everything";
    put_classes(5);
    fs::create_directory(root() / "LEAK/closed");
    fs::permissions(root() / "LEAK/closed", fs::perms::none);
    const auto made = make();
    fs::permissions(root() / "LEAK/closed", fs::perms::owner_all);
    ASSERT_TRUE(made.ok()) << made.error().text();
    EXPECT_NE(list().find("\"LEAK/closed\",,skipped"), std::string::npos);
}

TEST_F(SoundSet, ShortRecordingsAreRepeatedWhereThatIsAskedFor) {
    put("LEAK/short.wav", sound(500, 3, kSoundRate), kSoundRate);
    put("NORMAL/other.wav", sound(60, 10, kSoundRate), kSoundRate);
    const auto silent = sound_source(root()), repeating = sound_source(root(), true);
    ASSERT_TRUE(repeating.ok()) << repeating.error().text();
    EXPECT_NE(silent->identity, repeating->identity);
    EXPECT_EQ(repeating->items.at(0).name, "LEAK/short.wav");
    std::vector<float> a(kSoundSamples), b(kSoundSamples);
    ASSERT_EQ(*silent->read(0, std::span<float, kSoundSamples>(a)), Fit::padded);
    ASSERT_EQ(*repeating->read(0, std::span<float, kSoundSamples>(b)), Fit::padded);
    constexpr std::size_t kShort = 3 * kSoundRate;
    for (std::size_t i = 0; i < kSoundSamples; ++i) {
        EXPECT_EQ(a[i], i < kShort ? b[i] : 0) << i;
        EXPECT_EQ(b[i], b[i % kShort]) << i;
    }
    EXPECT_NE(b[kShort + 10], 0);
}

TEST_F(SoundSet, LoadedSetKnowsThatRecordingsWereRepeated) {
    put_classes(6);
    for (const bool repeat : {false, true}) {
        const auto source = sound_source(root(), repeat);
        ASSERT_TRUE(source.ok()) << source.error().text();
        const Path folder = folder_ / (repeat ? "repeated" : "padded");
        const auto made = make_sound_set(folder, *source, {});
        ASSERT_TRUE(made.ok()) << made.error().text();
        const auto set = load_recording_set(folder, {});
        ASSERT_TRUE(set.ok()) << set.error().text();
        EXPECT_EQ(set->classes.repeats, repeat);
    }
}

TEST_F(SoundSet, RecordingsOfTheHydrophoneAreTheSameThroughFiles) {
    const HydrophoneOptions options{.files = 20, .seed = 3, .gain = -60};
    ASSERT_TRUE(make_hydrophone_wav(root(), options).ok());
    EXPECT_EQ(make_hydrophone_wav(root(), options).value(), MakeOutcome::kAlreadyThere);
    EXPECT_FALSE(make_hydrophone_wav(root(), {.files = 21, .seed = 3}).ok());
    const SoundSource drawn = hydrophone_source(options);
    const auto read = sound_source(root());
    ASSERT_TRUE(read.ok()) << read.error().text();
    EXPECT_EQ(read->classes, drawn.classes);
    ASSERT_EQ(read->items.size(), drawn.items.size());
    std::vector<float> a(kSoundSamples), b(kSoundSamples);
    for (std::size_t i = 0; i < drawn.items.size(); ++i) {
        EXPECT_EQ(read->items[i].name, drawn.items[i].name);
        ASSERT_TRUE(drawn.read(i, std::span<float, kSoundSamples>(a)).ok());
        const auto fit = read->read(i, std::span<float, kSoundSamples>(b));
        ASSERT_TRUE(fit.ok());
        EXPECT_EQ(*fit, Fit::exact);
        EXPECT_EQ(a, b) << i;
    }
}

TEST_F(SoundSet, HydrophoneRefusesWhatItCannotDraw) {
    for (const HydrophoneOptions& wrong : {HydrophoneOptions{.files = 0},
                                           {.files = 10, .gain = 1},
                                           {.files = 10, .gain = NAN},
                                           {.files = 10, .threads = 5000},
                                           {.files = 5}})
        EXPECT_FALSE(make_hydrophone(out(), wrong).ok());
    EXPECT_FALSE(fs::exists(out()));
}

}  // namespace
}  // namespace millrace::data
