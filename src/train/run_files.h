#pragma once
// Writes what the model's family has to say about a run into its folder: at the end of every epoch and of the run.

#include "io/file.h"
#include "models/registry.h"
#include "train/loop.h"

namespace millrace::train {

class RunFiles final : public Listener {
public:
    /// `loop` is borrowed. `report` is Family::run_report; null: there is nothing to say.
    RunFiles(Loop& loop, models::RunReport (*report)(const models::Model&, tape::Store&), io::Path folder)
        : loop_(loop), report_(report), folder_(std::move(folder)) {}

    base::Status on_epoch(EpochReport& report) override;
    /// Before anything replaces the newest weights.
    base::Status on_stop(RunResult& result) override;

private:
    /// The line for people; empty: there is nothing to say. A file that cannot be written is a warning: training goes on.
    std::string write();

    Loop& loop_;
    models::RunReport (*const report_)(const models::Model&, tape::Store&);
    const io::Path folder_;
};

}  // namespace millrace::train
