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

}  // namespace millrace::data
