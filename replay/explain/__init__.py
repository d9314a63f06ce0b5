"""Why a pod was bound, refused or made to wait at one moment of a run."""
