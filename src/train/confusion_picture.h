#pragma once
// confusion.svg in a run's folder: the confusion matrix of a classifier's best weights.

#include "train/selection.h"

namespace millrace::train {

/// On what was set aside whenever better weights are found, so that a run that is stopped has it; at the end on the test part.
class ConfusionPicture final : public Listener {
public:
    /// Behind `selection`, which is borrowed, as `loop` is.
    ConfusionPicture(Loop& loop, const Selection& selection, io::Path folder)
        : loop_(loop), selection_(selection), folder_(std::move(folder)) {}

    base::Status on_epoch(EpochReport& report) override;
    base::Status on_stop(RunResult& result) override;

private:
    void write(const models::ClassReport& classes, std::size_t member, data::Part part);

    Loop& loop_;
    const Selection& selection_;
    const io::Path folder_;
};

}  // namespace millrace::train
