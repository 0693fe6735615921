// Recordings that are streamed from their files: which rows come when, in how much memory, and what is refused.

#include "data/recordings/resident_recordings.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "data/recording_files.h"
#include "data/recordings/recording_set.h"
#include "io/hdf5.h"
#include "tape/program.h"
#include "temporary_folder.h"

namespace millrace::data {
namespace {

using testing::feature_of;
using testing::RecordingFileSpec;

/// A window holds 96 rows of 16 bytes: 5 features, a half to fill up, a label.
StreamOptions small_windows() {
    StreamOptions options;
    options.window_bytes = std::uint64_t{2} * 96 * 16;
    options.epochs = 3;
    return options;
}

class StreamedSet : public ::testing::Test {
protected:
    void SetUp() override {
        if (!io::have_hdf5()) GTEST_SKIP() << "built without HDF5";
        spec_.labels = testing::mixed_labels(73);
    }
    [[nodiscard]] Result<RecordingSet> load(const Path& folder) const {
        RecordingRequest request;
        request.resident = false;
        return load_recording_set(folder, request);
    }
    [[nodiscard]] Result<std::unique_ptr<StreamedSource>> open(const Path& folder, const StreamOptions& options) const {
        MILLRACE_LET(set, load(folder));
        return StreamedSource::create(streamed(std::make_shared<const RecordingSet>(std::move(set))), options);
    }

    test::TemporaryFolder folder_;
    RecordingFileSpec spec_;
};

/// A program that gathers batches of a part, one after the other, as steps do. It owns the source, whose threads end first.
class Batches {
public:
    Batches(std::unique_ptr<StreamedSource> from, Part part, std::int32_t rows, int members,
            ops::DeviceKind device = ops::DeviceKind::cpu)
        : part_(part), rows_(rows), backend_(ops::make_backend(device, {}).value()), source_(std::move(from)) {
        StreamedSource& source = *source_;
        tape::StoreOptions options;
        options.members = members;
        store_ = std::make_unique<tape::Store>(*backend_, options);
        EXPECT_TRUE(source.declare(*store_).ok());
        EXPECT_TRUE(store_->allocate().ok());
        EXPECT_TRUE(source.upload(*store_).ok());
        std::vector<std::uint64_t> seeds;
        for (int k = 0; k < members; ++k) seeds.push_back(static_cast<std::uint64_t>(70 + k));
        store_->initialize(seeds);
        tape::BuildOptions build;
        build.training = part == Part::train;
        tape::Builder builder(*store_, build);
        views_ = source.gather(builder, part, rows, {{"features"}, {"label"}});
        for (const auto& view : views_) builder.keep(view);
        arena_ = std::make_unique<tape::Arena>(*backend_);
        program_ = std::make_unique<tape::Program>("gather", *store_, std::move(builder), *arena_);
        EXPECT_TRUE(arena_->allocate().ok());
        EXPECT_TRUE(program_->prepare().ok());
    }

    /// The rows of the file in the order in which member `member` saw them; checks labels and features on the way.
    base::Result<std::vector<std::vector<std::uint64_t>>> pass(std::uint32_t epoch, const RecordingFileSpec& spec) {
        const std::int32_t samples = source_->samples(part_);
        const auto members = static_cast<std::size_t>(store_->members());
        std::vector<std::vector<std::uint64_t>> seen(members);
        std::uint64_t step = 0;
        for (std::int32_t first = 0; first < samples; first += rows_, ++step) {
            const std::int32_t count = std::min(rows_, samples - first);
            MILLRACE_TRY(source_->await_rows({part_, epoch, first, count, step_ + step},
                                             [&] { return base::Result<std::uint64_t>(step_ + step); }));
            auto states = store_->read_states();
            for (ops::MemberState& state : states) {
                state.epoch = epoch;
                state.position = state.eval_position = static_cast<std::uint32_t>(first);
            }
            store_->write_states(states);
            program_->run();
            const auto x = program_->read(views_[0]), labels = program_->read(views_[1]);
            for (std::size_t k = 0; k < members; ++k)
                for (std::int32_t i = 0; i < count; ++i) {
                    const std::size_t at = k * static_cast<std::size_t>(rows_) + static_cast<std::size_t>(i);
                    const std::uint64_t row = testing::row_of(x[at * spec.width], x[at * spec.width + 1]);
                    seen[k].push_back(row);
                    EXPECT_EQ(labels[at], spec.labels.at(row / spec.windows()));
                    for (std::uint64_t d = 2; d < spec.width; ++d)
                        EXPECT_EQ(x[at * spec.width + d], static_cast<double>(feature_of(row, d, static_cast<int>(labels[at]))));
                }
        }
        if (part_ == Part::train) step_ += step;
        return seen;
    }
    [[nodiscard]] const tape::Store& store() const { return *store_; }
    [[nodiscard]] const StreamedSource& source() const { return *source_; }

private:
    Part part_;
    std::int32_t rows_;
    std::unique_ptr<ops::Backend> backend_;
    std::unique_ptr<tape::Store> store_;
    std::unique_ptr<tape::Arena> arena_;
    std::unique_ptr<tape::Program> program_;
    std::vector<tensor::View> views_;
    std::unique_ptr<StreamedSource> source_;
    std::uint64_t step_ = 0;
};

/// Every window comes once per epoch, in the order of the plan, in contiguous and in packed files.
class PlannedSet : public StreamedSet {
protected:
    void expect_plan(ops::DeviceKind device) {
        for (const std::uint64_t chunk : {0, 2, 3}) {
            spec_.chunk = chunk;
            spec_.f32 = chunk == 3;
            write_recording_folder(folder_ / std::to_string(chunk), spec_);
            auto source = open(folder_ / std::to_string(chunk), small_windows());
            ASSERT_TRUE(source.ok()) << source.error().text();
            Batches batches(std::move(*source), Part::train, 17, 2, device);
            const WindowPlan& plan = *batches.source().plan(Part::train);
            ASSERT_EQ(plan.rows, 73u * 6);
            ASSERT_GT(plan.windows(), 3u);
            ops::GatherFeaturesParams params;
            params.samples = plan.rows;
            params.window = plan.window_rows();
            for (const std::uint32_t epoch : {0u, 1u, 2u}) {
                const auto seen = batches.pass(epoch, spec_);
                ASSERT_TRUE(seen.ok()) << seen.error().text();
                EXPECT_NE((*seen)[0], (*seen)[1]);
                for (std::size_t k = 0; k < 2; ++k) {
                    EXPECT_EQ(std::set((*seen)[k].begin(), (*seen)[k].end()).size(), plan.rows);
                    for (std::uint32_t q = 0; q < plan.rows; ++q) {
                        const std::uint32_t at = ops::window_row(params, 70 + k, epoch, q) % plan.window_rows();
                        const std::uint32_t block = plan.blocks_of(epoch, q / plan.window_rows()).at(at / plan.block_rows);
                        ASSERT_EQ((*seen)[k][q], block * plan.block_rows + at % plan.block_rows) << "sample " << q;
                    }
                }
            }
            EXPECT_GE(batches.source().loader_counts(0)->bytes, std::uint64_t{3} * plan.rows * 16);
        }
    }
};

TEST_F(PlannedSet, EveryWindowComesOncePerEpochInTheOrderOfThePlan) { expect_plan(ops::DeviceKind::cpu); }

TEST_F(PlannedSet, TheSameOnAGpu) {
    if (const auto there = ops::cuda_available(); !there.ok()) GTEST_SKIP() << there.error().text();
    expect_plan(ops::DeviceKind::cuda);
}

TEST_F(StreamedSet, EvaluationTakesTheFilesOrderAgainAndAgain) {
    for (const std::size_t recordings : {1, 3, 29}) {
        const std::string name = std::to_string(recordings);
        write_recording_folder(folder_ / name, spec_, recordings);
        auto source = open(folder_ / name, small_windows());
        ASSERT_TRUE(source.ok()) << source.error().text();
        RecordingFileSpec validation = spec_;
        validation.labels = testing::mixed_labels(recordings);
        Batches batches(std::move(*source), Part::validation, 5, 1);
        for (int again = 0; again < 3; ++again) {
            const auto seen = batches.pass(0, validation);
            ASSERT_TRUE(seen.ok()) << seen.error().text();
            ASSERT_EQ(seen->front().size(), recordings * 6);
            for (std::size_t i = 0; i < seen->front().size(); ++i) ASSERT_EQ(seen->front()[i], i);
        }
    }
}

TEST_F(StreamedSet, TakesNoMoreMemoryThanItWasGiven) {
    spec_.labels = testing::mixed_labels(400);
    write_recording_folder(folder_.path(), spec_, 100, 100);
    const StreamOptions options = small_windows();
    auto source = open(folder_.path(), options);
    ASSERT_TRUE(source.ok()) << source.error().text();
    Batches batches(std::move(*source), Part::train, 17, 1);
    const std::int64_t rows = (400 + 100 + 100) * 6 * 16;
    EXPECT_LE(batches.store().bytes(tape::Role::data), static_cast<std::int64_t>(options.window_bytes * 3 / 2 + 2 * 5 * 4));
    EXPECT_LT(batches.store().bytes(tape::Role::data) * 10, rows);
    EXPECT_TRUE(load(folder_.path())->part(Part::train).features.empty()) << "nothing of the set is in the host's memory";
    const auto seen = batches.pass(0, spec_);
    ASSERT_TRUE(seen.ok());
    EXPECT_EQ(std::set(seen->front().begin(), seen->front().end()).size(), 2400u);
}

TEST_F(StreamedSet, AFileThatIsCutOrGoesAwayIsAnErrorThatNamesIt) {
    for (const bool cut : {true, false}) {
        const Path folder = folder_ / (cut ? "cut" : "gone");
        write_recording_folder(folder, spec_);
        auto source = open(folder, small_windows());
        ASSERT_TRUE(source.ok()) << source.error().text();
        Batches batches(std::move(*source), Part::train, 17, 1);
        ASSERT_TRUE(batches.pass(0, spec_).ok());
        if (cut)
            std::filesystem::resize_file(folder / kRecordingFiles[0], 600);
        else
            std::filesystem::remove(folder / kRecordingFiles[0]);
        auto failed = batches.pass(1, spec_);
        if (failed.ok()) failed = batches.pass(2, spec_);  // what was read before may have been all of an epoch
        ASSERT_FALSE(failed.ok());
        EXPECT_NE(failed.error().text().find("cannot read the train data"), std::string::npos) << failed.error().text();
        EXPECT_NE(failed.error().text().find("TRAINING_DATASET.H5"), std::string::npos) << failed.error().text();
    }
}

TEST_F(StreamedSet, WindowsOfOneClassAreRefusedUntilTheSetIsPacked) {
    spec_.labels = testing::sorted_labels(200);
    spec_.chunk = 20;
    write_recording_folder(folder_ / "sorted", spec_);
    StreamOptions options = small_windows();
    options.window_bytes = std::uint64_t{2} * 40 * 96;  // two chunks of a class each
    const auto refused = open(folder_ / "sorted", options);
    ASSERT_FALSE(refused.ok());
    for (const char* words : {"one class alone", "data.window", "millrace data pack"})
        EXPECT_NE(refused.error().text().find(words), std::string::npos) << refused.error().text();

    std::uint64_t done = 0, total = 0;
    const auto packed = pack_recordings(folder_ / "sorted", folder_ / "packed", 7, [&](std::uint64_t now, std::uint64_t all) {
        done = now;
        total = all;
    });
    ASSERT_TRUE(packed.ok()) << packed.error().text();
    EXPECT_EQ(done, total);
    EXPECT_EQ(total, 400u);
    auto source = open(folder_ / "packed", options);
    ASSERT_TRUE(source.ok()) << source.error().text();
    EXPECT_LT((*source)->loader_counts(0)->mix_deviation, 0.5);
    EXPECT_NE((*source)->loading().find("differs from that of the set by at most"), std::string::npos);
}

TEST_F(StreamedSet, ThePackedCopyHoldsTheSameRecordingsInAnotherOrder) {
    spec_.labels = testing::mixed_labels(50);
    spec_.chunk = 4;
    write_recording_folder(folder_ / "in", spec_);
    std::ofstream(folder_ / "in" / "recordings.csv") << "path,class,split,row,note\n\"a,training,b.wav\",\"LEAK\",training,3,\n"
                                                        "\"v.wav\",\"LEAK\",validation,3,\n";
    ASSERT_TRUE(pack_recordings(folder_ / "in", folder_ / "out", 7).ok());
    const auto before = load_recording_set(folder_ / "in", {}), after = load_recording_set(folder_ / "out", {});
    ASSERT_TRUE(before.ok() && after.ok());
    const auto piece = [&](const RecordingSet& set, std::size_t r) {
        const auto begin = set.part(Part::train).features.begin() + static_cast<std::ptrdiff_t>(r * 30);
        return std::pair(set.part(Part::train).labels[r], std::vector(begin, begin + 30));
    };
    std::multiset<std::pair<std::int32_t, std::vector<std::uint16_t>>> old_ones, new_ones;
    std::size_t third = 99, moved = 0;
    for (std::size_t r = 0; r < 50; ++r) {
        old_ones.insert(piece(*before, r));
        new_ones.insert(piece(*after, r));
        moved += piece(*before, r) == piece(*after, r) ? 0 : 1;
        if (piece(*after, r) == piece(*before, 3)) third = r;
    }
    EXPECT_EQ(old_ones, new_ones);
    EXPECT_GT(moved, 30u);
    EXPECT_EQ(before->part(Part::test).features, after->part(Part::test).features);
    EXPECT_EQ(before->scaling->mean, after->scaling->mean);
    const auto list = io::read_text(folder_ / "out" / "recordings.csv");
    EXPECT_EQ(*list, "path,class,split,row,note\n\"a,training,b.wav\",\"LEAK\",training," + std::to_string(third) +
                         ",\n\"v.wav\",\"LEAK\",validation,3,\n");
    const auto file = io::Hdf5File::open(folder_ / "out" / kRecordingFiles[0]);
    EXPECT_EQ((*file)->find("segments_mel")->chunk, (std::vector<std::uint64_t>{4, 2, 3, 5, 1}));
    const auto again = pack_recordings(folder_ / "in", folder_ / "out", 7);
    ASSERT_FALSE(again.ok());
    EXPECT_NE(again.error().text().find("another --out"), std::string::npos);
}

TEST_F(StreamedSet, WindowsThatHoldNoBlockAreRefused) {
    spec_.chunk = 20;
    write_recording_folder(folder_.path(), spec_);
    const auto refused = open(folder_.path(), small_windows());
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().text().find("120 of its segments are read at a time"), std::string::npos) << refused.error().text();
}

TEST_F(StreamedSet, StatisticsAreThoseOfAResidentSet) {
    write_recording_folder(folder_.path(), spec_);
    auto set = load_recording_set(folder_.path(), {});
    ColumnStatistics pieces(set->width);
    const std::span features(set->part(Part::train).features);
    pieces.add(features.first(35));
    pieces.add(features.subspan(35));
    const Scaling whole = measure(set->part(Part::train), set->width);
    EXPECT_EQ(pieces.scaling().mean, whole.mean);
    EXPECT_EQ(pieces.scaling().deviation, whole.deviation);
}

}  // namespace
}  // namespace millrace::data
