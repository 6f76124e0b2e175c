"""ASET's worlds, calibrated: what its paper leaves open, chosen by its static policies alone.

    python -m edgewise_studies.calibration freeze    fix predicates, ranges and seeds, before all else
    python -m edgewise_studies.calibration worlds    measure some worlds; again, and it goes on
    python -m edgewise_studies.calibration choose    fix the worlds that fit
    python -m edgewise_studies.calibration room      what one who knows what comes gains in them
    python -m edgewise_studies.calibration slices    the same in many worlds, estimated
    python -m edgewise_studies.calibration learned   what ASET learns in those that fit, trained there
    python -m edgewise_studies.calibration page      figures and page

`space` says what is open and makes worlds of it, `predicates` what the paper's figures say of its static
policies, `measure` runs them, `room` is the chooser that knows what comes, `slices` an estimate of it,
`learned` trains ASET there, `page` shows all.

Forbidden here: test seeds; and in whatever chooses worlds, any policy that was trained.
"""
