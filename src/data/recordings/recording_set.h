#pragma once
// Recordings cut into windows, each window a row of features: what a folder of TRAINING_DATASET.H5, VALIDATION_DATASET.H5 and
// TESTING_DATASET.H5 holds.

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/batch_source.h"
#include "data/command.h"
#include "data/folder.h"
#include "io/hdf5.h"
#include "ops/gather/gather.h"

namespace millrace::data {

class FeatureFile;

/// The recordings of one part. Window w of recording r is row r * windows + w.
struct Recordings {
    std::int32_t count = 0;
    std::vector<std::uint16_t> features;  ///< f16 [count * windows, width]; empty where they stay in their file
    std::vector<std::int32_t> labels;     ///< of each recording, below the number of classes
};

struct RecordingSet {
    std::string name;
    Classes classes;           ///< counts are of windows
    std::int32_t windows = 1;  ///< of a recording: the product of classes.together
    std::int32_t width = 1;
    std::array<Recordings, kPartCount> parts;
    std::array<std::shared_ptr<const FeatureFile>, kPartCount> files;  ///< of the parts that are not in memory
    std::shared_ptr<const Scaling> scaling;

    [[nodiscard]] const Recordings& part(Part which) const { return parts[index_of(which)]; }
    [[nodiscard]] const std::shared_ptr<const FeatureFile>& file(Part which) const { return files[index_of(which)]; }
};

/// Mean and deviation of each column over rows that come piece by piece; a column that never changes has deviation 1.
class ColumnStatistics {
public:
    explicit ColumnStatistics(std::int32_t width);
    /// f16 [any, width]
    void add(std::span<const std::uint16_t> rows);
    [[nodiscard]] Scaling scaling() const;

private:
    std::vector<double> offset_, sum_, squares_;
    double rows_ = 0;
};
Scaling measure(const Recordings& recordings, std::int32_t width);

/// Features and label, with what is known of them.
Fields fields_of(const RecordingSet& set);

/// What features are scaled by, as gather_features takes it: [1,1,1,width] each.
struct ScalingViews {
    tensor::View mean, inverse;

    void declare(tape::Store& store, std::int32_t width);
    void upload(tape::Store& store, const Scaling& scaling) const;
};

/// What gather_features reads, `order` absent where a table holds windows.
struct FeatureTables {
    tensor::View features, labels, mean, inverse, order;
};
/// Appends the record that fills both fields, whichever is wanted; gives the views in the order of `fields`.
std::vector<tensor::View> append_gather(tape::Builder& builder, const ops::GatherFeaturesParams& params,
                                        const FeatureTables& from, std::int32_t rows, std::span<const Wanted> fields);

/// Turns the classes into two, the positive one and all others, whose name is "NO" and its name.
void make_binary(RecordingSet& set);

/// Counts the windows of each class in the training part.
void count_classes(RecordingSet& set);

// The features of one part in its file, read piece by piece.

/// The data set segments_mel. Any number of threads may read.
class FeatureFile {
public:
    /// F16 or F32 [recordings, ...] with `values` features of each recording.
    FeatureFile(std::shared_ptr<const io::Hdf5Dataset> set, Path path, std::uint64_t values);

    /// The features of recordings [first, first + count), f16 [count * values]. Refuses those that are not finite, and a file
    /// that has changed.
    Status read(std::uint64_t first, std::uint64_t count, std::span<std::uint16_t> out) const;
    /// The same of all, on as many threads as the machine has.
    Result<std::vector<std::uint16_t>> read_all() const;

    [[nodiscard]] std::uint64_t count() const { return set_->rows(); }
    [[nodiscard]] std::uint64_t values() const { return values_; }
    /// Recordings that are best read together: those of a chunk.
    [[nodiscard]] std::uint64_t together() const;

private:
    std::shared_ptr<const io::Hdf5Dataset> set_;
    Path path_;
    std::uint64_t values_;
};

// Loads a folder of TRAINING_DATASET.H5 and, where they are there, VALIDATION_DATASET.H5 and TESTING_DATASET.H5. Each holds
//   segments_mel  [recordings, long windows, short windows of each, bands, 1], or with an axis of one channel more; F16 or F32
//   labels        [recordings], whole numbers
//   mel_mean, mel_std  [bands], optional: of the training part
// and the attribute labels_json, the names of the classes by label.

struct RecordingRequest {
    std::string positive = {};                    ///< the class that is looked for; empty: LEAK, or else label 1 of two
    bool binary = true;                           ///< that class against all others
    std::shared_ptr<const Scaling> scaling = {};  ///< instead of the folder's own
    bool resident = true;                         ///< false: features stay in their files, which stay open
};

/// Refuses files that do not fit together, labels without a name, features that are not finite, an unknown class.
Result<RecordingSet> load_recording_set(const Path& folder, const RecordingRequest& request);

/// What the set would take of device memory, by the headers of its files.
Result<std::uint64_t> resident_recording_bytes(const Path& folder);

// A copy of a set of recordings whose training part is in random order, so that every window of a streamed set holds all classes.

/// Copies the folder `in` to `out`: the recordings of TRAINING_DATASET.H5 in the order drawn by `seed`, with the layout and the
/// attributes of the file; the other two files as they are; recordings.csv with the new rows. Takes memory for a piece of 64 MiB.
/// All files appear together; a place that holds one of them is refused. Gives a line about it for people.
Result<std::string> pack_recordings(const Path& in, const Path& out, std::uint64_t seed, const CommandProgress& progress = {});

}  // namespace millrace::data
