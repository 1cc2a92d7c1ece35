"""`fednode` as a program that encodes few public images, as commands in the tests' process do."""

from fednode.cli import main
from fednode.learn import public

if __name__ == "__main__":
    public.IMAGES = 2  # type: ignore[misc]
    main()
